/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line of verbena-perf: what is taken, what is refused and with
 * which words, which sizes, iterations and rounds come of it.
 */
#include "cunit_run.h"
#include "args.h"

#include <verbena/collectives.h>

#include <errno.h>
#include <string.h>

static struct perf_options o;
static char why[512];

/* Parse a line of words with a program's name in front. */
static int parse(const char *line)
{
	static char text[512], program[] = "verbena-perf";
	char *argv[64] = {program}, *save;
	int argc = 1;

	snprintf(text, sizeof(text), "%s", line);
	for (char *w = strtok_r(text, " ", &save); w && argc < 63;
	     w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	why[0] = '\0';
	return perf_parse(&o, argc, argv, why, sizeof(why));
}

/* Refused, in one line that has @words. */
static void refused(const char *line, const char *words)
{
	int rc = parse(line);

	CU_ASSERT_EQUAL(rc, -EINVAL);
	if (rc != -EINVAL || !strstr(why, words) || strchr(why, '\n')) {
		printf("\n\"%s\": %d, \"%s\" instead of \"%s\"\n", line, rc,
		       why, words);
		CU_FAIL("not refused as it should be");
	}
}

static void test_defaults(void)
{
	CU_ASSERT_EQUAL(parse("put-bw"), 0);
	CU_ASSERT_EQUAL(o.test->op, PERF_PUT);
	CU_ASSERT_TRUE(o.test->bandwidth);
	CU_ASSERT_EQUAL(o.size, 65536);
	CU_ASSERT_EQUAL(o.depth, 128);
	CU_ASSERT_EQUAL(o.qps, 1);
	CU_ASSERT_EQUAL(o.list, 1);
	CU_ASSERT_FALSE(perf_wants_verbs(&o));
	CU_ASSERT_EQUAL(parse("atomic-lat"), 0);
	CU_ASSERT_EQUAL(o.size, 8);
	CU_ASSERT_EQUAL(parse("put-lat"), 0);
	CU_ASSERT_EQUAL(o.size, 2);
}

static void test_every_test(void)
{
	static const char *const names[] = {
		"put-lat",	  "notify-lat", "send-lat",  "get-lat",
		"atomic-lat",	  "put-bw",	"send-bw",   "get-bw",
		"allreduce",	  "reduce",	"broadcast", "allgather",
		"reduce-scatter", "alltoall",	"gather",    "scatter",
		"barrier"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CU_ASSERT_EQUAL(parse(names[i]), 0);
		CU_ASSERT_STRING_EQUAL(o.test->name, names[i]);
	}
}

static void test_values(void)
{
	CU_ASSERT_EQUAL(
		parse("-s 4K -n 10 send-bw -q 4 -t 16 -l 4 -b -e -d "
		      "mlx5_0 -i 2 -x 3 -m 1024 -S 1 -T 32 --raw -R -I 64 "
		      "--rounds 9 --report_gbits --perform_warm_up "
		      "--validate --counters"),
		0);
	CU_ASSERT_EQUAL(o.size, 4096);
	CU_ASSERT_EQUAL(o.iterations, 10);
	CU_ASSERT_EQUAL(o.qps, 4);
	CU_ASSERT_EQUAL(o.depth, 16);
	CU_ASSERT_EQUAL(o.list, 4);
	CU_ASSERT_EQUAL(o.port, 2);
	CU_ASSERT_EQUAL(o.gid_index, 3);
	CU_ASSERT_EQUAL(o.mtu, 1024);
	CU_ASSERT_EQUAL(o.sl, 1);
	CU_ASSERT_EQUAL(o.tos, 32);
	CU_ASSERT_EQUAL(o.inline_max, 64);
	CU_ASSERT_EQUAL(o.rounds, 9);
	CU_ASSERT_TRUE(o.bidirectional && o.events && o.raw && o.cm &&
		       o.gbits && o.warm_up && o.validate && o.counters);
	CU_ASSERT_STRING_EQUAL(o.device, "mlx5_0");
	CU_ASSERT_TRUE(perf_wants_verbs(&o));
	CU_ASSERT_EQUAL(parse("put-lat --size=8M"), 0);
	CU_ASSERT_EQUAL(o.size, 8 << 20);
	CU_ASSERT_EQUAL(parse("put-lat -s1G"), 0);
	CU_ASSERT_EQUAL(o.size, 1 << 30);
}

static void test_collectives(void)
{
	CU_ASSERT_EQUAL(parse("reduce-scatter"), 0);
	CU_ASSERT_EQUAL(o.test->op, PERF_COLLECTIVE);
	CU_ASSERT_EQUAL(o.test->coll, COLL_REDUCE_SCATTER);
	CU_ASSERT_EQUAL(o.type, VBN_FLOAT32);
	CU_ASSERT_EQUAL(o.reduction, VBN_SUM);
	CU_ASSERT_EQUAL(o.algorithm, VBN_ALGORITHM_AUTO);
	CU_ASSERT_EQUAL(o.chunk, PERF_UNSET);
	CU_ASSERT_EQUAL(o.check, 1);
	CU_ASSERT_EQUAL(parse("allreduce --type half --op max --algorithm ring "
			      "--chunk 64K --malloc --check 0 --csv x"),
			0);
	CU_ASSERT_EQUAL(o.type, VBN_FLOAT16);
	CU_ASSERT_EQUAL(o.reduction, VBN_MAX);
	CU_ASSERT_EQUAL(o.algorithm, VBN_ALGORITHM_RING);
	CU_ASSERT_EQUAL(o.chunk, 65536);
	CU_ASSERT_EQUAL(o.check, 0);
	CU_ASSERT_TRUE(o.malloc);
	CU_ASSERT_EQUAL(parse("barrier -n 5 --algorithm dissemination"), 0);
	refused("allreduce --algorithm star", "it is one of auto ring tree");
	refused("allreduce --type float32", "int8 uint8");
	refused("allreduce --op mean", "sum prod");
	refused("allgather --type double -s 7", "an element has 8 bytes");
	refused("allgather --op sum", "collectives that reduce");
	refused("barrier -s 8", "tests that have data");
	refused("barrier --malloc", "collectives that have data");
	refused("put-bw --algorithm ring", "with collectives");
	CU_ASSERT_EQUAL(parse("barrier --overlap"), 0);
	CU_ASSERT_TRUE(o.overlap);
	refused("put-lat --overlap", "with collectives");
	refused("tune --overlap", "with collectives");
	refused("allreduce --chunk 0", "--chunk 0: a number");
}

static void test_help(void)
{
	CU_ASSERT_EQUAL(parse("--help"), 0);
	CU_ASSERT_TRUE(o.help);
	CU_ASSERT_EQUAL(parse("put-lat -h --nonsense"), 0);
	CU_ASSERT_TRUE(o.help);
}

static void test_words(void)
{
	refused("", "name one test");
	refused("put-lat get-lat", "name one test");
	refused("put-sideways", "no test put-sideways");
	refused("put-lat --fast", "no option --fast");
	refused("put-lat -Z", "no option -Z");
	refused("put-lat -s", "needs a value");
	refused("put-lat --json", "needs a value");
	refused("put-lat --json=", "empty");
}

static void test_numbers(void)
{
	static const char *const bad[] = {"0",	  "-1",	 "8x", "1KK", "K",
					  "0x10", "1.5", "+1", "8k"};
	char line[64];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(line, sizeof(line), "put-lat -s %s", bad[i]);
		refused(line, "a number from 1");
	}
	refused("put-lat -s 99999999999999999999", "a number");
	refused("put-lat -s 17179869185G", "a number");
	refused("put-bw -q 0", "-q 0: a number from 1 to 64");
	refused("put-bw -q 65", "from 1 to 64");
	refused("put-lat -x 256", "from 0 to 255");
	refused("put-lat -S 16", "from 0 to 15");
	refused("put-lat --rounds 0", "--rounds 0");
	refused("put-lat -m 1000", "256, 512");
}

static void test_combinations(void)
{
	refused("put-lat -n 5 -D 1", "exclude");
	refused("put-lat -D 1 --rounds 2", "--rounds");
	refused("put-lat -i 1", "-i needs -d");
	refused("put-lat -I 8", "--raw");
	refused("put-lat -R", "-R goes with --raw");
	refused("put-bw -t 4 -l 5", "tx depth");
	refused("atomic-lat -s 16", "8 bytes");
	refused("atomic-lat -a", "8 bytes");
	refused("put-lat -a -s 1", "-a begins above");
	refused("allreduce -s 3", "4 bytes");
	refused("put-lat --json x --csv x", "one file");
	refused("put-lat --json - --csv -", "one file");
}

static void test_kinds(void)
{
	refused("put-lat -q 2", "bandwidth tests");
	refused("put-lat -b", "-b does not go with put-lat");
	refused("put-lat -t 2", "bandwidth tests");
	refused("put-lat -l 2", "bandwidth tests");
	refused("put-lat --report_gbits", "bandwidth tests");
	refused("put-bw --histogram", "latency tests");
	refused("allreduce --raw", "tests of the transport");
	refused("allreduce -D 1", "tests of the transport");
	refused("put-lat --check 1", "collectives");
}

static void test_sizes(void)
{
	size_t sizes[PERF_SIZES_MAX];

	parse("put-lat -a");
	CU_ASSERT_EQUAL(perf_sizes(&o, sizes), 23);
	CU_ASSERT_EQUAL(sizes[0], 2);
	CU_ASSERT_EQUAL(sizes[22], 8 << 20);
	parse("put-lat -a -s 5");
	CU_ASSERT_EQUAL(perf_sizes(&o, sizes), 2);
	CU_ASSERT_EQUAL(sizes[1], 4);
	parse("allreduce -a");
	CU_ASSERT_EQUAL(perf_sizes(&o, sizes), 24);
	CU_ASSERT_EQUAL(sizes[0], 8);
	CU_ASSERT_EQUAL(sizes[23], 64 << 20);
	parse("get-bw -s 77");
	CU_ASSERT_EQUAL(perf_sizes(&o, sizes), 1);
	CU_ASSERT_EQUAL(sizes[0], 77);
	/* As many as there is room for. */
	parse("put-lat -a -s 1024G");
	CU_ASSERT_EQUAL(perf_sizes(&o, sizes), PERF_SIZES_MAX);
}

static void test_iterations(void)
{
	parse("put-lat");
	CU_ASSERT_EQUAL(perf_iterations(&o, 2), 1000);
	CU_ASSERT_EQUAL(perf_iterations(&o, 1 << 20), 256);
	CU_ASSERT_EQUAL(perf_iterations(&o, (size_t)1 << 30), 10);
	CU_ASSERT_EQUAL(perf_warmup(&o, 1000), 100);
	CU_ASSERT_EQUAL(perf_warmup(&o, 10), 2);
	parse("put-bw -n 7 --perform_warm_up -t 32");
	CU_ASSERT_EQUAL(perf_iterations(&o, 2), 7);
	CU_ASSERT_EQUAL(perf_warmup(&o, 7), 32);
	parse("put-bw --warmup 0");
	CU_ASSERT_EQUAL(perf_warmup(&o, 1000), 0);
}

static void test_rounds(void)
{
	parse("put-lat");
	CU_ASSERT_EQUAL(perf_rounds(&o, 1000), 1);
	parse("put-lat --raw");
	CU_ASSERT_EQUAL(perf_rounds(&o, 1000), PERF_ROUNDS_RAW);
	CU_ASSERT_EQUAL(perf_rounds(&o, 3), 3);
	parse("put-lat --raw --rounds 4");
	CU_ASSERT_EQUAL(perf_rounds(&o, 1000), 4);
}

/* All are done, in as many turns as asked when they are short enough. */
static void test_turns(void)
{
	for (size_t rounds = 1; rounds <= 50; rounds++) {
		size_t left = 50, turns = 0;

		while (left > 0) {
			size_t n = perf_turn(
				left, turns < rounds ? rounds - turns : 1, 1e-6,
				1);

			CU_ASSERT_FATAL(n >= 1 && n <= left);
			left -= n;
			turns++;
		}
		CU_ASSERT_EQUAL(turns, rounds);
	}
	CU_ASSERT_EQUAL(perf_turn(1000, 1, 0, 5), PERF_TURN_FIRST);
	CU_ASSERT_EQUAL(perf_turn(1000, 1, 0.1, 5), 51);
	CU_ASSERT_EQUAL(perf_turn(1000, 1, 1e9, 5), 1);
	CU_ASSERT_EQUAL(perf_turn((size_t)1 << 40, 1, 1e-9, 5), PERF_TURN_MAX);
	CU_ASSERT_EQUAL(perf_turn(0, 1, 0, 5), 0);
}

static void test_shares(void)
{
	size_t all = 0;

	for (size_t k = 0; k < 7; k++) {
		CU_ASSERT(perf_share(100, 7, k) >= 14);
		all += perf_share(100, 7, k);
	}
	CU_ASSERT_EQUAL(all, 100);
	/* Endpoints of which there are more than operations. */
	CU_ASSERT_EQUAL(perf_share(2, 3, 0), 1);
	CU_ASSERT_EQUAL(perf_share(2, 3, 2), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"defaults", test_defaults},
		{"every test", test_every_test},
		{"values", test_values},
		{"collectives", test_collectives},
		{"help", test_help},
		{"words", test_words},
		{"numbers", test_numbers},
		{"combinations", test_combinations},
		{"options of other kinds of test", test_kinds},
		{"sizes", test_sizes},
		{"iterations", test_iterations},
		{"rounds", test_rounds},
		{"turns", test_turns},
		{"shares", test_shares},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{"perf_options", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
