/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's side, its loop run round by round. */
#include "store.c"

#include "fuzz.h"
#include "wire.h"

#define RANKS 3 /* rank 0 beside the store, 1 and 2 by the input */

/* Not a frame but the script's own: 10 s in which nobody was heard. */
#define TIME_PASSES 0x7f
/* A record's connection: the second of the two. */
#define SECOND 0x80

static struct store *store_new(int *rank0)
{
	const struct store_options opts = {.nranks = RANKS,
					   .secret = "secret",
					   .dead_ms = 1000,
					   .listen_fd = -1};
	struct store *s = store_alloc(&opts);
	int pair[2];

	if (!s || net_pair(pair) || watch_own(s) ||
	    peer_create(s, pair[0], true))
		abort();
	*rank0 = pair[1];
	return s;
}

static void run(struct store *s)
{
	/* At once: all that has come, and is due. */
	for (int i = 0; i < 3; i++)
		round_once(s, 0);
}

/* Throw away what the store has sent, so that it never has to wait. */
static void discard(int fd)
{
	char bytes[4096];

	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

static int connect_one(struct store *s, struct peer **peer)
{
	int pair[2];

	if (net_pair(pair) || peer_create(s, pair[0], false))
		abort();
	if (peer)
		*peer = TAILQ_LAST(&s->pending, peer_list);
	return pair[1];
}

/* One that has proved that it knows the secret. */
static int connect_proved(struct store *s, struct wire_crypt *crypt)
{
	struct peer *p;
	int fd = connect_one(s, &p);

	p->state = PEER_JOINING;
	fuzz_keys(&p->wire.crypt, false);
	fuzz_keys(crypt, true);
	return fd;
}

static void end(struct store *s, int rank0)
{
	struct peer *p;

	net_close(rank0);
	run(s);
	while ((p = TAILQ_FIRST(&s->pending)))
		peer_doom(s, p);
	while ((p = TAILQ_FIRST(&s->joined)))
		peer_doom(s, p);
	reap(s);
	store_free(s);
}

/* Rank @rank of RANKS that waits for ever. */
static void join_body(uint8_t body[16], uint32_t rank)
{
	uint8_t *p = put_u32(put_u32(body, rank), RANKS);

	put_u32(put_u32(p, UINT32_MAX), UINT32_MAX);
}

static void rank0_joins(int fd)
{
	uint8_t frame[21];

	put_u32(frame, 17);
	frame[4] = FRAME_JOIN;
	join_body(frame + 5, 0);
	fuzz_send(fd, frame, sizeof(frame));
}

static void no_rank(const struct store *s)
{
	if (s->njoined)
		abort(); /* a stranger was taken for a rank */
}

/* The handshake up to the verdict; @knows: of the secret. */
static void shake(struct store *s, int fd, bool knows)
{
	uint8_t greeting[WIRE_GREETING], mac[WIRE_MAC];
	struct wire_shake shake;

	wire_greeting(greeting, &shake, ROLE_RANK);
	fuzz_send(fd, greeting, sizeof(greeting));
	run(s);
	if (!knows)
		return;
	if (recv(fd, greeting, sizeof(greeting), MSG_DONTWAIT) !=
	    (ssize_t)sizeof(greeting))
		abort();
	wire_heard(&shake, ROLE_STORE, greeting);
	wire_mac(mac, fuzz_key, ROLE_RANK, &shake);
	fuzz_send(fd, mac, sizeof(mac));
	run(s);
}

/* The first byte: 1: a good greeting goes before, 2: a good proof, too. */
void fuzz_store_stranger(const uint8_t *data, size_t len)
{
	int rank0, fd;
	struct store *s = store_new(&rank0);

	fd = connect_one(s, NULL);
	if (len && data[0] & 3)
		shake(s, fd, data[0] & 2);
	if (len) {
		fuzz_send(fd, data + 1, len - 1);
		run(s);
	}
	no_rank(s);
	net_close(fd);
	end(s, rank0);
}

static void time_passes(struct store *s)
{
	struct peer *p;

	TAILQ_FOREACH(p, &s->joined, link)
	p->heard -= 10000;
	if (s->live_at != NET_NEVER)
		s->live_at = s->beat_at = 0;
}

void fuzz_store_frames(const uint8_t *data, size_t len, bool joined)
{
	struct script script = {data, data + len};
	struct wire_crypt crypt[2];
	uint8_t type, join[16];
	const uint8_t *body;
	int rank0, fd[2];
	struct store *s = store_new(&rank0);
	size_t n;

	rank0_joins(rank0);
	for (uint32_t i = 0; i < 2; i++) {
		fd[i] = connect_proved(s, &crypt[i]);
		join_body(join, i + 1);
		if (joined)
			fuzz_frame(fd[i], &crypt[i], FRAME_JOIN, join, 16);
	}
	run(s);
	while (script_next(&script, &type, &body, &n)) {
		int which = type & SECOND ? 1 : 0;

		if ((type & ~SECOND) == TIME_PASSES)
			time_passes(s);
		else
			fuzz_frame(fd[which], &crypt[which],
				   type & (uint8_t)~SECOND, body, n);
		run(s);
		discard(fd[0]);
		discard(fd[1]);
		discard(rank0);
	}
	net_close(fd[0]);
	net_close(fd[1]);
	end(s, rank0);
}

void fuzz_store_unsealed(const uint8_t *data, size_t len)
{
	struct wire_crypt crypt;
	int rank0, fd;
	struct store *s = store_new(&rank0);

	fd = connect_proved(s, &crypt);
	fuzz_send(fd, data, len);
	run(s);
	no_rank(s);
	net_close(fd);
	end(s, rank0);
}
