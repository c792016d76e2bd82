/*
 * Slide 26 of the same talk: "Pointers to shared memory cannot be shared! A simple linked list becomes complex."
 * Here the list is a simple linked list: nodes of coproc_alloc(), plain pointers, and a robust mutex, since a
 * coproc may be killed at any moment. Two coprocs add to it, a third dies with the lock held.
 */
#define _GNU_SOURCE
#include "coproc.h"
#include "latchwork.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct node {
	struct node *next;
	pid_t author;
	int number;
};

struct list {
	lw_robust_mutex_t lock;
	struct node *first;
	int count;
};

/* Who gets the lock from the dead counts again: the links are never broken, the count may be one behind. */
static void enter(struct list *list)
{
	int error = lw_mutex_lock(&list->lock);
	if (error == EOWNERDEAD) {
		list->count = 0;
		for (struct node *node = list->first; node != NULL; node = node->next)
			list->count++;
		error = lw_mutex_consistent(&list->lock);
	}
	if (error != 0)
		abort();
}

static void leave(struct list *list)
{
	if (lw_mutex_unlock(&list->lock) != 0)
		abort();
}

static void add(struct list *list, int number)
{
	struct node *node = coproc_alloc(sizeof *node);
	if (node == NULL)
		abort();
	node->author = getpid();
	node->number = number;
	enter(list);
	node->next = list->first;
	list->first = node;
	list->count++;
	leave(list);
}

static int adder(void *list)
{
	for (int number = 0; number < 100; number++)
		add(list, number);
	return 0;
}

static int victim(void *argument)
{
	struct list *list = argument;
	struct node *node = coproc_alloc(sizeof *node);
	enter(list);
	node->next = list->first;
	node->author = getpid();
	node->number = -1;
	list->first = node;
	/* Before it counts. */
	kill(getpid(), SIGKILL);
	return 0;
}

int main(void)
{
	struct list *list;
	pid_t coprocs[3];
	int status, walked = 0;

	if (coproc_init(4 * 1024 * 1024) != 0) {
		perror("coproc_init");
		return 1;
	}
	list = coproc_alloc(sizeof *list);
	if (list == NULL)
		abort();
	lw_robust_mutex_init(&list->lock);
	list->first = NULL;
	list->count = 0;

	coprocs[0] = coproc_create("adder-1", NULL, 0, adder, list);
	coprocs[1] = coproc_create("adder-2", NULL, 0, adder, list);
	coprocs[2] = coproc_create("victim", NULL, 0, victim, list);
	adder(list);
	for (int index = 0; index < 3; index++) {
		if (coprocs[index] < 0 || coproc_join(coprocs[index], &status) != 0)
			abort();
		if (WIFSIGNALED(status))
			printf("%d was killed by signal %d, with the lock held\n", (int)coprocs[index],
			       WTERMSIG(status));
	}

	enter(list);
	for (struct node *node = list->first; node != NULL; node = node->next)
		walked++;
	printf("%d nodes, %d counted\n", walked, list->count);
	leave(list);
	while (list->first != NULL) {
		struct node *node = list->first;
		list->first = node->next;
		coproc_free(node);
	}
	coproc_free(list);
	return coproc_exit() == 0 && walked == 301 ? 0 : 1;
}
