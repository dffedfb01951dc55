/* SPDX-License-Identifier: BSD-3-Clause */
/* The tests and the options: see args_table.h. */
#include "args_table.h"
#include "coll_values.h"

#define COLLECTIVE(name, op, what)                                             \
	{                                                                      \
		name, PERF_COLLECTIVE, false, false, 1 << 20, what, op         \
	}

const struct perf_test perf_tests[] = {
	{"put-lat", PERF_PUT, false, true, 2, "put, half a round trip", 0},
	{"notify-lat", PERF_NOTIFY, false, true, 8,
	 "put with notify, half a round trip", 0},
	{"send-lat", PERF_SEND, false, true, 2,
	 "send and receive, half a round trip", 0},
	{"get-lat", PERF_GET, false, true, 2, "get, post to completion", 0},
	{"atomic-lat", PERF_ATOMIC, false, true, 8,
	 "fetch-add, post to completion", 0},
	{"put-bw", PERF_PUT, true, true, 65536, "stream of puts", 0},
	{"send-bw", PERF_SEND, true, true, 65536, "stream of sends", 0},
	{"get-bw", PERF_GET, true, true, 65536, "stream of gets", 0},
	COLLECTIVE("allreduce", COLL_ALLREDUCE, "reduction, to every rank"),
	COLLECTIVE("reduce", COLL_REDUCE, "reduction, to rank 0"),
	COLLECTIVE("broadcast", COLL_BROADCAST, "rank 0's buffer to all"),
	COLLECTIVE("allgather", COLL_ALLGATHER, "all parts, to every rank"),
	COLLECTIVE("reduce-scatter", COLL_REDUCE_SCATTER,
		   "reduction, a part to each rank"),
	COLLECTIVE("alltoall", COLL_ALLTOALL, "a part from each to each"),
	COLLECTIVE("gather", COLL_GATHER, "all parts, to rank 0"),
	COLLECTIVE("scatter", COLL_SCATTER, "parts of rank 0's, to each"),
	{"barrier", PERF_COLLECTIVE, false, false, 0, "nothing but meeting",
	 COLL_BARRIER},
	{"tune", PERF_TUNE, false, false, 0, "what collectives go by", 0},
};

const size_t perf_ntests = sizeof(perf_tests) / sizeof(perf_tests[0]);

#define FIELD(name) offsetof(struct perf_options, name)
#define SWITCH(letter, name, field, where, what)                               \
	{                                                                      \
		letter, name, NULL, KIND_BOOL, FIELD(field), where, 0, 0,      \
			what, NULL                                             \
	}
#define NUMBER(letter, name, arg, field, where, min, max, what)                \
	{                                                                      \
		letter, name, arg, KIND_NUMBER, FIELD(field), where, min, max, \
			what, NULL                                             \
	}
#define TEXT(letter, name, arg, field, where, what)                            \
	{                                                                      \
		letter, name, arg, KIND_TEXT, FIELD(field), where, 0, 0, what, \
			NULL                                                   \
	}
#define NAME(letter, name, field, where, what, value)                          \
	{                                                                      \
		letter, name, "NAME", KIND_NAME, FIELD(field), where, 0, 0,    \
			what, value                                            \
	}

static const char *algorithm_name(int i)
{
	return i < VBN_ALGORITHMS ? vbn_algorithm_name((enum vbn_algorithm)i)
				  : NULL;
}

const struct flag perf_flags[] = {
	NUMBER('s', "size", "BYTES", size, SIZED, 1, (size_t)1 << 40,
	       "message size, of collectives the larger buffer's; K, M, G are\n"
	       "powers of 1024"),
	SWITCH('a', "all", all, SIZED,
	       "every power of two from 2 to 8M (collectives: 8 to 64M);\n"
	       "with -s up to that size"),
	NUMBER('n', "iters", "N", iterations, ANY, 1, (size_t)1 << 40,
	       "iterations per size, over all rounds (by size; collectives: as\n"
	       "many as take 0.15 s)"),
	NUMBER('D', "duration", "SECONDS", duration_s, TRANSPORT, 1, 86400,
	       "so long per size, instead of -n"),
	NUMBER(256, "warmup", "N", warmup, ANY, 0, PERF_TURN_MAX,
	       "iterations before, not counted (a tenth of -n, at most 100;\n"
	       "collectives: for 0.03 s)"),
	SWITCH(257, "perform_warm_up", warm_up, TRANSPORT,
	       "at least as many as the tx depth before"),
	NUMBER('q', "qp", "N", qps, BW, 1, PERF_QPS_MAX,
	       "N endpoints in parallel, context i of one rank to context i\n"
	       "of the other (--raw: N queue pairs on one completion queue)"),
	NUMBER('t', "tx-depth", "N", depth, BW, 1, PERF_DEPTH_MAX,
	       "operations in flight per endpoint (128)"),
	NUMBER('l', "post_list", "N", list, BW, 1, 1024,
	       "post chains of N (VBN_MORE; --raw: lists of N)"),
	SWITCH('b', "bidirectional", bidirectional, BW,
	       "all ranks stream, to the next; the sum is told"),
	SWITCH('e', "events", events, TRANSPORT,
	       "sleep when there is nothing instead of polling; not for put-lat\n"
	       "between two ranks, whose receiver polls memory"),
	SWITCH(258, "raw", raw, TRANSPORT,
	       "the same exchange on ibverbs alone too, in turns, and the\n"
	       "ratio; needs an RDMA device"),
	SWITCH('R', "rdma_cm", cm, TRANSPORT,
	       "connect --raw's queue pairs by rdma_cm (RoCE, 2 ranks); of the\n"
	       "library's --connect says"),
	TEXT(276, "connect", "control|rdmacm", connect, TRANSPORT,
	     "who connects the library's queue pairs: the control plane, or\n"
	     "librdmacm (VBN_CONNECT; control)"),
	NUMBER(259, "rounds", "N", rounds, TRANSPORT, 1, 10000,
	       "turns that -n is divided into (1; with --raw 10)"),
	TEXT('d', "ib-dev", "DEVICE", device, TRANSPORT,
	     "RDMA device (VBN_IB_HCA)"),
	NUMBER('i', "ib-port", "PORT", port, TRANSPORT, 1, 255,
	       "its port, with -d (1)"),
	NUMBER('x', "gid-index", "INDEX", gid_index, TRANSPORT, 0, 255,
	       "GID (VBN_IB_GID_INDEX; by rule)"),
	NUMBER('m', "mtu", "BYTES", mtu, TRANSPORT, 256, 4096,
	       "path MTU: 256, 512, 1024, 2048, 4096 (VBN_IB_MTU; the port's)"),
	NUMBER('S', "sl", "SL", sl, TRANSPORT, 0, 15,
	       "service level (VBN_IB_SL; 0)"),
	NUMBER('T', "tos", "TOS", tos, TRANSPORT, 0, 255,
	       "traffic class (VBN_IB_TC; 0)"),
	NUMBER('I', "inline_size", "BYTES", inline_max, TRANSPORT, 0, 4096,
	       "of --raw: inline up to so much (put-lat, notify-lat 220,\n"
	       "send-lat 236, else 0); the library takes what is granted"),
	SWITCH(260, "validate", validate, TRANSPORT,
	       "check the data; a wrong byte is an error (and takes time)"),
	SWITCH(261, "report_gbits", gbits, BW,
	       "10^9 bits per second instead of 2^20 bytes"),
	SWITCH(262, "histogram", histogram, LAT,
	       "how many samples took how long"),
	SWITCH(263, "counters", counters, TRANSPORT,
	       "what the library did per operation"),
	TEXT(264, "json", "FILE", json, ANY,
	     "results as JSON; - for standard output, instead of the table"),
	TEXT(265, "csv", "FILE", csv, ANY, "results as CSV; - likewise"),
	TEXT(266, "plot", "FILE.svg", plot, TRANSPORT,
	     "a diagram, made by gnuplot"),
	NUMBER(267, "check", "0|1", check, DATA, 0, 1, "verify the result (1)"),
	NAME(268, "algorithm", algorithm, COLL,
	     "of the operation's algorithms (auto: by size)", algorithm_name),
	NAME(269, "type", type, DATA, "of the elements (float)",
	     coll_type_name),
	NAME(270, "op", reduction, SUM, "reduction (sum)", coll_reduction_name),
	NUMBER(271, "chunk", "BYTES", chunk, DATA, 1, (size_t)1 << 30,
	       "per message (by size)"),
	SWITCH(272, "malloc", malloc, DATA,
	       "buffers that the library knows nothing of"),
	SWITCH(275, "overlap", overlap, COLL,
	       "how much of a call is hidden by computing between its start and\n"
	       "the wait for it, without and with a progress thread"),
	TEXT(273, "out", "FILE", out, TUNE,
	     "of tune: what VBN_COLL_TUNING reads (standard output)"),
	NUMBER(274, "seconds", "N", seconds, TUNE, 1, 86400,
	       "of tune: about so long (60)"),
	SWITCH('h', "help", help, ANY | TUNE, "this text"),
};

const size_t perf_nflags = sizeof(perf_flags) / sizeof(perf_flags[0]);

_Static_assert(sizeof(perf_flags) / sizeof(perf_flags[0]) <= PERF_FLAGS_MAX,
	       "more options than a set of them holds");
