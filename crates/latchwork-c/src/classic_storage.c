/*
 * Message queues of the classic interface in memory that the program provides: its handler is called once the queue no
 * longer exists.
 */
#include "classic.h"
#include "internal.h"

#include <stdint.h>
#include <stdlib.h>

rtems_status_code latchwork_message_queue_construct(rtems_name name, uint32_t count, size_t max_message_size,
						    rtems_attribute attributes, size_t storage_size, rtems_id *id);
rtems_status_code latchwork_message_queue_delete(rtems_id id);

/* The memory of a queue that was constructed with a handler for it. */
struct storage {
	struct storage *next;
	rtems_id id;
	void *area;
	void (*free)(void *);
};

/* Of struct storage. */
static struct latchwork_own *storages;

static int is_deleted(rtems_id id)
{
	uint32_t count;
	return rtems_message_queue_get_number_pending(id, &count) == RTEMS_INVALID_ID;
}

/* Calls the handlers of queues that no longer exist. */
static void free_storages(void)
{
	struct storage *gone = NULL, *kept = NULL, *next;
	struct latchwork_own *list = latchwork_own(&storages);
	if (list == NULL)
		return;
	lw_mutex_lock(&list->lock);
	for (struct storage *storage = list->first; storage != NULL; storage = next) {
		struct storage **to = is_deleted(storage->id) ? &gone : &kept;
		next = storage->next;
		storage->next = *to;
		*to = storage;
	}
	list->first = kept;
	lw_mutex_unlock(&list->lock);
	while (gone != NULL) {
		struct storage *storage = gone;
		gone = storage->next;
		storage->free(storage->area);
		free(storage);
	}
}

rtems_status_code rtems_message_queue_construct(const rtems_message_queue_config *config, rtems_id *id)
{
	struct storage *storage = NULL;
	struct latchwork_own *list = latchwork_own(&storages);
	rtems_status_code status;
	/* A size that no memory has. */
	size_t size = SIZE_MAX;
	if (config == NULL)
		return RTEMS_INVALID_ADDRESS;
	free_storages();
	if (config->storage_area != NULL)
		size = config->storage_size;
	if (config->storage_free != NULL) {
		storage = list == NULL ? NULL : malloc(sizeof *storage);
		/* As if the program provided no memory for the queue. */
		if (storage == NULL)
			size = SIZE_MAX;
	}
	status = latchwork_message_queue_construct(config->name, config->maximum_pending_messages,
						   config->maximum_message_size, config->attributes, size, id);
	if (status != RTEMS_SUCCESSFUL || storage == NULL) {
		free(storage);
		return status;
	}
	storage->id = *id;
	storage->area = config->storage_area;
	storage->free = config->storage_free;
	lw_mutex_lock(&list->lock);
	storage->next = list->first;
	list->first = storage;
	lw_mutex_unlock(&list->lock);
	return RTEMS_SUCCESSFUL;
}

rtems_status_code rtems_message_queue_delete(rtems_id id)
{
	rtems_status_code status = latchwork_message_queue_delete(id);
	if (status == RTEMS_SUCCESSFUL)
		free_storages();
	return status;
}
