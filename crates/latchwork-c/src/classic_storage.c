/*
 * Message queues of the classic interface in memory that the program provides: its handler is called once the queue no
 * longer exists.
 */
#include "classic.h"
#include "latchwork.h"

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

static LW_DEFINE_MUTEX(storages_lock);
static struct storage *storages;

static int is_deleted(rtems_id id)
{
	uint32_t count;
	return rtems_message_queue_get_number_pending(id, &count) == RTEMS_INVALID_ID;
}

/* Calls the handlers of queues that no longer exist. */
static void free_storages(void)
{
	struct storage *gone = NULL, **place = &storages;
	lw_mutex_lock(&storages_lock);
	while (*place != NULL) {
		struct storage *storage = *place;
		if (is_deleted(storage->id)) {
			*place = storage->next;
			storage->next = gone;
			gone = storage;
		} else {
			place = &storage->next;
		}
	}
	lw_mutex_unlock(&storages_lock);
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
	rtems_status_code status;
	/* A size that no memory has. */
	size_t size = SIZE_MAX;
	if (config == NULL)
		return RTEMS_INVALID_ADDRESS;
	free_storages();
	if (config->storage_area != NULL)
		size = config->storage_size;
	if (config->storage_free != NULL) {
		storage = malloc(sizeof *storage);
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
	lw_mutex_lock(&storages_lock);
	storage->next = storages;
	storages = storage;
	lw_mutex_unlock(&storages_lock);
	return RTEMS_SUCCESSFUL;
}

rtems_status_code rtems_message_queue_delete(rtems_id id)
{
	rtems_status_code status = latchwork_message_queue_delete(id);
	if (status == RTEMS_SUCCESSFUL)
		free_storages();
	return status;
}
