/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of the verbs provider's own table, without the core, in the manner
 * of ib_write_lat: two processes, each waits for the other's 8 bytes and
 * answers. "put" watches the buffer's last byte as ib_write_lat does (fine for
 * measuring on rxe, not for use), "notify" waits for a put with notify,
 * "send" for a message. Prints half the round trip in us: median and minimum.
 *
 * usage: verbs_lat [ROUNDS]
 */
#include "pair.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM_UP 200

struct half {
	struct bench b;
	struct side side;
	struct region buf;
	struct blob peer_key;
	uint64_t peer_addr;
	int fd;
	int rank;
};

static void swap(struct half *h, const void *out, void *in, size_t len)
{
	size_t got = 0;

	CHECK(write(h->fd, out, len) == (ssize_t)len);
	while (got < len) {
		ssize_t n = read(h->fd, (char *)in + got, len - got);

		CHECK(n > 0);
		got += (size_t)n;
	}
}

static void connect_half(struct half *h)
{
	struct conn_info info = {
		.rank = !h->rank, .self_rank = h->rank, .generation = 1};
	const struct provider *ops = h->b.ops;
	struct blob peer, none = {0}, offer = {0}, theirs;
	uint64_t addr = (uintptr_t)h->buf.mem.addr;

	h->side.ep.ctx = &h->b.a.core;
	h->side.ep.ops = ops;
	swap(h, &h->b.a.address, &peer, sizeof(peer));
	swap(h, &h->buf.announce, &h->peer_key, sizeof(peer));
	swap(h, &addr, &h->peer_addr, sizeof(addr));
	if (h->rank == 0)
		CHECK(!ops->conn_create(h->b.a.pctx, &info, &peer,
					&h->side.ep.conn, &offer));
	swap(h, &offer, &theirs, sizeof(offer));
	if (h->rank == 1)
		CHECK(!ops->conn_accept(h->b.a.pctx, &info, &peer, &theirs,
					&h->side.ep.conn, &offer));
	swap(h, &offer, &theirs, sizeof(offer));
	if (h->rank == 0)
		CHECK(!ops->conn_finish(h->side.ep.conn, &theirs));
	swap(h, &none, &theirs, sizeof(none));
	side_attach(&h->side);
}

static void progress(struct half *h)
{
	h->b.ops->progress(h->b.a.pctx);
}

static void put(struct half *h, struct vbn_op *op, uint8_t value, bool notify)
{
	uint8_t *buf = h->buf.mem.addr;
	struct put_args args = {.local = buf + 64,
				.len = 8,
				.mem = &h->buf.mem,
				.mem_handle = h->buf.handle,
				.remote = h->peer_addr,
				.key = &h->peer_key,
				.notify = notify,
				.imm = 1u << 28};

	while (op->status == -EINPROGRESS)
		progress(h);
	buf[64 + 7] = value;
	mock_op_init(op, NULL, NULL);
	CHECK(!h->b.ops->put(h->side.ep.conn, op, &args));
}

/* One direction of a round, per mode; @i counts from 1. */
static void post(struct half *h, int mode, struct vbn_op *op, unsigned long i)
{
	struct message_header header = {.kind = 1};
	int err;

	if (mode < 2) {
		put(h, op, (uint8_t)i, mode == 1);
		return;
	}
	while ((err = h->b.ops->message(h->side.ep.conn, &header, "12345678",
					8)) == -EAGAIN)
		progress(h);
	CHECK(!err);
}

static void await(struct half *h, int mode, unsigned long i)
{
	volatile uint8_t *last = (uint8_t *)h->buf.mem.addr + 7;

	if (mode == 0)
		while (*last != (uint8_t)i)
			;
	else if (mode == 1)
		while (h->side.ep.notifies < i)
			progress(h);
	else
		while (h->side.ep.messages < i)
			progress(h);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void ping_pong(struct half *h, int mode, unsigned long rounds)
{
	static const char *const names[] = {"put", "notify", "send"};
	double *times = calloc(rounds, sizeof(*times));
	struct vbn_op op = {.status = 0};

	CHECK(times);
	for (unsigned long i = 1; i <= WARM_UP + rounds; i++) {
		double start = now_us();

		if (h->rank == 1)
			await(h, mode, i);
		post(h, mode, &op, i);
		if (h->rank == 0)
			await(h, mode, i);
		if (i > WARM_UP)
			times[i - WARM_UP - 1] = (now_us() - start) / 2;
	}
	while (op.status == -EINPROGRESS)
		progress(h);
	qsort(times, rounds, sizeof(*times), by_size);
	if (h->rank == 0)
		printf("%s %.2f %.2f\n", names[mode], times[rounds / 2],
		       times[0]);
	free(times);
}

static void run(int rank, int fd, unsigned long rounds)
{
	static struct half h;
	char byte = 0, theirs;

	h.rank = rank;
	h.fd = fd;
	h.b.ops = &provider_verbs;
	CHECK(!provider_verbs.job_open(NULL, &h.b.pjob, &h.b.caps));
	end_open(&h.b, &h.b.a);
	region_open(&h.b, &h.buf, 4096, VBN_ACCESS_ALL);
	connect_half(&h);
	for (int mode = 0; mode < 3; mode++)
		ping_pong(&h, mode, rounds);
	swap(&h, &byte, &theirs, 1);
	side_close(&h.side, -ECANCELED);
	region_close(&h.b, &h.buf);
	end_close(&h.b, &h.b.a);
	provider_verbs.job_close(h.b.pjob);
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000;
	int fds[2], status = 0;
	pid_t child;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	run(child == 0, fds[child == 0], rounds);
	if (!child)
		return 0;
	CHECK(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
