/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank whose job runs: what its control thread reads. */
#include "control_thread.c"

#include "fuzz.h"

#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define RANKS	3
#define LOOKUPS 3

static unsigned answered;

/* Have each byte read. */
static void touch(const uint8_t *p, size_t len)
{
	static volatile uint8_t sink;

	for (size_t i = 0; i < len; i++)
		sink = p[i];
	(void)sink;
}

static void on_lookup(void *arg, int err, const void *value, size_t len)
{
	(void)arg, (void)err;
	answered++;
	touch(value, len);
}

static void on_any_message(void *arg, int from, unsigned type, const void *data,
			   size_t len)
{
	if (from < 0 || from >= RANKS || len > CONTROL_MESSAGE_MAX)
		abort();
	(void)arg, (void)type;
	touch(data, len);
}

static void on_any_gone(void *arg, int rank, bool died, const char *why)
{
	(void)arg, (void)died;
	if (rank < 0 || rank >= RANKS || strlen(why) >= WIRE_WHY_MAX)
		abort();
}

static struct control *control_new(int *fd)
{
	struct control_options o = {.rank = 1, .nranks = RANKS};
	struct control *c = calloc(1, sizeof(*c));
	int pair[2];

	if (!c || net_pair(pair))
		abort();
	c->rank = o.rank;
	c->nranks = o.nranks;
	c->events = (struct control_events){on_any_message, on_any_gone, NULL};
	wire_init(&c->wire, pair[0]);
	fuzz_keys(&c->wire.crypt, true);
	atomic_init(&c->first_dead, -1);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->ran, NULL);
	cond_init_monotonic(&c->rest);
	for (unsigned b = 0; b < REQUEST_BUCKETS; b++)
		TAILQ_INIT(&c->pending[b]);
	TAILQ_INIT(&c->due);
	STAILQ_INIT(&c->run);
	c->gone = calloc(RANKS, sizeof(*c->gone));
	c->why = calloc(RANKS, sizeof(*c->why));
	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*fd = pair[1];
	return c;
}

static void control_delete(struct control *c)
{
	wire_close(&c->wire);
	close(c->epoll_fd);
	close(c->wake_fd);
	for (int i = 0; i < RANKS; i++)
		free(c->why[i]);
	free(c->why);
	free(c->gone);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->ran);
	pthread_cond_destroy(&c->rest);
	free(c);
}

/* Look-ups 1 to 3 wait, a blocking request 4 as well. */
static void ask(struct control *c, struct request *blocking)
{
	answered = 0;
	for (int i = 0; i < LOOKUPS; i++)
		control_lookup(c, "key", true, on_lookup, NULL);
	blocking->id = ++c->next_id;
	pthread_cond_init(&blocking->cond, NULL);
	TAILQ_INSERT_TAIL(control_bucket(c, blocking->id), blocking, link);
}

static void read_all(struct control *c)
{
	while (c->wire.fd >= 0) {
		if (wire_fill(&c->wire, SIZE_MAX) <= 0)
			break;
		drain_frames(c);
	}
}

/* Each request is answered once, whatever came. */
static void end(struct control *c, struct request *blocking, int fd)
{
	if (c->wire.fd >= 0)
		lose_store(c, "the end");
	run_all(c);
	if (answered != LOOKUPS || !blocking->done)
		abort();
	pthread_cond_destroy(&blocking->cond);
	net_close(fd);
	control_delete(c);
}

void fuzz_thread_frames(const uint8_t *data, size_t len)
{
	struct script script = {data, data + len};
	uint8_t value[64], type;
	struct request blocking = {
		.value = value, .room = sizeof(value), .gone_rank = -1};
	struct wire_crypt crypt;
	const uint8_t *body;
	size_t n;
	int fd;
	struct control *c = control_new(&fd);

	fuzz_keys(&crypt, false);
	ask(c, &blocking);
	while (script_next(&script, &type, &body, &n)) {
		fuzz_frame(fd, &crypt, type, body, n);
		read_all(c);
	}
	end(c, &blocking, fd);
}

void fuzz_thread_unsealed(const uint8_t *data, size_t len)
{
	struct request blocking = {.gone_rank = -1};
	int fd;
	struct control *c = control_new(&fd);

	ask(c, &blocking);
	fuzz_send(fd, data, len);
	read_all(c);
	if (answered)
		abort(); /* it took a stranger for the store */
	end(c, &blocking, fd);
}
