/*
 * A write transaction of LMDB, for `latchwork crashtest`. docs/crashtest.md has the result.
 *
 *     cc -g lmdb.c -o lmdb $(pkg-config --cflags latchwork) -llmdb
 *     latchwork crashtest -- ./lmdb               the database is opened again after the kill
 *     latchwork crashtest -- ./lmdb survivor      another process has it open, with its lock table
 *     latchwork crashtest -- ./lmdb open          the kill hits the opening itself, of a new database
 *
 * Two keys have equal values, and change in one transaction. After each kill they must be equal, and another write
 * transaction must succeed.
 */
#include <crashtest.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int error, const char *what)
{
	if (error != 0) {
		printf("%s: %s\n", what, mdb_strerror(error));
		exit(2);
	}
}

static MDB_env *open_it(void)
{
	const char *folder = getenv("LATCHWORK_CRASHTEST_DIR");
	MDB_env *env;

	must(mdb_env_create(&env), "mdb_env_create");
	must(mdb_env_open(env, folder != NULL ? folder : ".", 0, 0600), "mdb_env_open");
	return env;
}

static void put(MDB_env *env, int value)
{
	char one[] = "one", other[] = "other";
	MDB_val key, data;
	MDB_txn *txn;
	MDB_dbi dbi;

	must(mdb_txn_begin(env, NULL, 0, &txn), "mdb_txn_begin");
	must(mdb_dbi_open(txn, NULL, 0, &dbi), "mdb_dbi_open");
	data.mv_size = sizeof value;
	data.mv_data = &value;
	key.mv_size = sizeof one;
	key.mv_data = one;
	must(mdb_put(txn, dbi, &key, &data, 0), "mdb_put");
	key.mv_size = sizeof other;
	key.mv_data = other;
	must(mdb_put(txn, dbi, &key, &data, 0), "mdb_put");
	must(mdb_txn_commit(txn), "mdb_txn_commit");
}

/* The value of a key, or 0. */
static int get(MDB_txn *txn, MDB_dbi dbi, const char *name)
{
	MDB_val key, data;
	int error, value = 0;

	key.mv_size = strlen(name) + 1;
	key.mv_data = (void *)name;
	error = mdb_get(txn, dbi, &key, &data);
	if (error != MDB_NOTFOUND) {
		must(error, "mdb_get");
		memcpy(&value, data.mv_data, sizeof value);
	}
	return value;
}

static int check(MDB_env *env)
{
	int one, other, dead;
	MDB_txn *txn;
	MDB_dbi dbi;

	must(mdb_reader_check(env, &dead), "mdb_reader_check");
	must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "mdb_txn_begin");
	must(mdb_dbi_open(txn, NULL, 0, &dbi), "mdb_dbi_open");
	one = get(txn, dbi, "one");
	other = get(txn, dbi, "other");
	mdb_txn_abort(txn);
	if (one != other) {
		printf("torn: %d and %d\n", one, other);
		return 1;
	}
	put(env, 3);
	printf("value %d, readers removed: %d\n", one, dead);
	return 0;
}

static void operate(int opens)
{
	MDB_env *env;

	if (opens)
		lw_crashtest_begin();
	env = open_it();
	if (!opens) {
		put(env, 1);
		lw_crashtest_begin();
		put(env, 2);
	}
	lw_crashtest_end();
	mdb_env_close(env);
}

int main(int argc, char **argv)
{
	const char *phase = getenv("LATCHWORK_CRASHTEST");

	if (phase != NULL && strcmp(phase, "check") == 0)
		return check(open_it());
	if (argc > 1 && strcmp(argv[1], "survivor") == 0) {
		/* The child waits until this process has the database open: LMDB's handles do not survive a fork. */
		int ready[2];
		char byte = 0;
		MDB_env *env;
		pid_t child;

		if (pipe(ready) != 0)
			return 2;
		child = fork();
		if (child == 0) {
			if (read(ready[0], &byte, 1) != 1)
				return 2;
			operate(0);
			return 0;
		}
		env = open_it();
		if (child < 0 || write(ready[1], &byte, 1) != 1)
			return 2;
		waitpid(child, NULL, 0);
		return check(env);
	}
	operate(argc > 1 && strcmp(argv[1], "open") == 0);
	return 0;
}
