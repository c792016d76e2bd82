/*
 * Four processes move money between the accounts of one ledger. Two of them are killed in the middle of a transfer: the
 * next process that locks the ledger gets EOWNERDEAD, and undoes the transfer by the note that the dead process had made of
 * it. Not a penny is lost.
 *
 * The ledger's lock is a region mutex: 8 bytes, no list, and about as fast as a mutex that notices no death.
 */
#include <latchwork.h>
#include <latchwork/region.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ACCOUNTS 8
#define CLERKS 4
#define TRANSFERS 50000
#define TOTAL (1000L * ACCOUNTS)

struct ledger {
	lw_region_mutex_t lock;
	long balance[ACCOUNTS];
	/* What the accounts "from" and "to" had before the transfer that is under way; "is_open": there is one. */
	struct {
		int is_open, from, to;
		long had_from, had_to;
	} note;
	int undone;
};

static void must(int error)
{
	if (error != 0) {
		fprintf(stderr, "%s\n", strerror(error));
		exit(1);
	}
}

/* Zeros are an unlocked mutex. */
static void make(void *object, void *argument)
{
	struct ledger *ledger = (struct ledger *)object;
	(void)argument;
	for (int account = 0; account < ACCOUNTS; account++)
		ledger->balance[account] = TOTAL / ACCOUNTS;
}

/* The owner was killed between any two instructions. (If this process is killed here, the next one repeats it.) */
static void repair(struct ledger *ledger)
{
	if (ledger->note.is_open) {
		ledger->balance[ledger->note.from] = ledger->note.had_from;
		ledger->balance[ledger->note.to] = ledger->note.had_to;
		atomic_signal_fence(memory_order_seq_cst);
		ledger->note.is_open = 0;
	}
	ledger->undone++;
}

static void lock(struct ledger *ledger)
{
	int error = lw_mutex_lock(&ledger->lock);
	if (error == EOWNERDEAD) {
		repair(ledger);
		error = lw_mutex_consistent(&ledger->lock);
	}
	must(error);
}

static void transfer(struct ledger *ledger, int from, int to, long amount, int dies)
{
	lock(ledger);
	ledger->note.from = from;
	ledger->note.to = to;
	ledger->note.had_from = ledger->balance[from];
	ledger->note.had_to = ledger->balance[to];
	/* The compiler keeps the order: a process that is killed has made all stores before that instruction. */
	atomic_signal_fence(memory_order_seq_cst);
	ledger->note.is_open = 1;
	atomic_signal_fence(memory_order_seq_cst);
	ledger->balance[from] -= amount;
	if (dies)
		raise(SIGKILL);
	ledger->balance[to] += amount;
	atomic_signal_fence(memory_order_seq_cst);
	ledger->note.is_open = 0;
	must(lw_mutex_unlock(&ledger->lock));
}

static void work(struct ledger *ledger, unsigned clerk)
{
	unsigned number = clerk + 1;
	for (int count = 0; count < TRANSFERS; count++) {
		int from, to;
		number = number * 1103515245u + 12345u;
		from = (int)(number >> 16) % ACCOUNTS;
		to = (from + 1 + (int)(number >> 24) % (ACCOUNTS - 1)) % ACCOUNTS;
		transfer(ledger, from, to, (long)(number >> 8) % 100, clerk % 2 == 1 && count == TRANSFERS / 2);
	}
}

int main(void)
{
	lw_region_t *region;
	struct ledger *ledger;
	void *object;
	long total = 0;
	int killed = 0, status;

	must(lw_region_create(&region, NULL, NULL));
	must(lw_region_object(region, "ledger", lw_type("example.ledger 1"), sizeof *ledger, make, NULL, &object));
	ledger = (struct ledger *)object;
	for (unsigned clerk = 0; clerk < CLERKS; clerk++) {
		if (fork() == 0) {
			/* The first lock call makes this process a task of the region. */
			work(ledger, clerk);
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		killed += WIFSIGNALED(status) != 0;
	lock(ledger);
	for (int account = 0; account < ACCOUNTS; account++)
		total += ledger->balance[account];
	printf("%d clerks killed, %d transfers undone: the total is %ld, and should be %ld\n", killed, ledger->undone,
	       total, TOTAL);
	status = total != TOTAL || killed != 2 || ledger->undone != 2;
	must(lw_mutex_unlock(&ledger->lock));
	must(lw_region_detach(region));
	return status;
}
