/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's way into the job. Until the store has accepted the secret, a
 * connection that breaks is worth another try: rank 0 may not be up yet, or
 * may have made room for others. After FRAME_JOIN every end is final, unless
 * the store says that an earlier job is still ending.
 */
#include "control_join.h"
#include "control_net.h"
#include "error.h"
#include "rendezvous.h"

#include <verbena/job.h>

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHAKE_MS     10000
#define BACKOFF_MIN  10
#define BACKOFF_MAX  250
#define STORE_PREFIX "rank 0's store"

/* Worth another try; never leaves this file. */
#define RETRY (-EAGAIN)

struct join {
	const struct control_options *opts;
	struct wire *wire;
	int64_t deadline;
	uint32_t *dead_ms;
	char why[256]; /* of the last try */
};

/* 0 ready, -ETIMEDOUT. A broken connection counts as ready. */
static int wait_for(struct wire *w, short events, int64_t deadline)
{
	struct pollfd p = {.fd = w->fd, .events = events};
	int n;

	do
		n = poll(&p, 1, net_remaining(deadline));
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n ? 0 : -ETIMEDOUT;
}

static int flush_all(struct wire *w, int64_t deadline)
{
	int rc;

	while ((rc = wire_flush(w)) == 1) {
		rc = wait_for(w, POLLOUT, deadline);
		if (rc)
			return rc;
	}
	return rc;
}

/* Read more. -ECONNRESET: closed. */
static int more(struct wire *w, size_t limit, int64_t deadline)
{
	int rc;

	for (;;) {
		rc = wire_fill(w, limit);
		if (rc > 0)
			return 0;
		if (rc == 0)
			return -ECONNRESET;
		if (rc != -EAGAIN)
			return rc;
		rc = wait_for(w, POLLIN, deadline);
		if (rc)
			return rc;
	}
}

static int read_raw(struct wire *w, size_t len, const uint8_t **data,
		    int64_t deadline)
{
	int rc;

	while (!(*data = wire_peek(w, len))) {
		rc = more(w, len, deadline);
		if (rc)
			return rc;
	}
	return 0;
}

static int write_raw(struct wire *w, const void *data, size_t len,
		     int64_t deadline)
{
	int rc = wire_queue_raw(w, data, len);

	return rc ? rc : flush_all(w, deadline);
}

static int broke(struct join *j, int rc)
{
	snprintf(j->why, sizeof(j->why), "the handshake broke off: %s",
		 rc == -ETIMEDOUT ? "no answer" : strerror(-rc));
	return RETRY;
}

static int check_greeting(struct join *j, const uint8_t *prefix)
{
	uint32_t version = 0;
	int rc = wire_greeting_check(prefix, &version);

	if (rc == -ENOMSG)
		return vbn_fail(-EPROTO,
				"what answers at %s port %u is not a job's "
				"rank 0: check VBN_ADDRESS or MASTER_PORT",
				j->opts->host, (unsigned)j->opts->port);
	if (rc)
		return vbn_fail(rc,
				"rank 0 at %s port %u speaks version %u of the "
				"control protocol, rank %d version %u: use "
				"the same verbena on all ranks",
				j->opts->host, (unsigned)j->opts->port, version,
				j->opts->rank, WIRE_VERSION);
	return 0;
}

static int check_verdict(struct join *j, const uint8_t *verdict,
			 const uint8_t mac[WIRE_MAC])
{
	if (wire_verdict_code(verdict) == VERDICT_ACCEPTED &&
	    wire_mac_equal(mac, verdict + 4))
		return 0;
	return vbn_fail(-EACCES,
			"the job's secret differs from rank 0's (at %s port "
			"%u): give all ranks the same VBN_SECRET or "
			"VBN_SECRET_FILE",
			j->opts->host, (unsigned)j->opts->port);
}

/* Prove the secret, have the store prove it; then all is sealed. */
static int shake_hands(struct join *j, const uint8_t key[WIRE_KEY])
{
	int64_t deadline = net_sooner(j->deadline, net_deadline(SHAKE_MS));
	uint8_t greeting[WIRE_GREETING], mac[WIRE_MAC];
	struct wire_shake shake;
	const uint8_t *in;
	int rc;

	wire_greeting(greeting, &shake, ROLE_RANK);
	rc = write_raw(j->wire, greeting, sizeof(greeting), deadline);
	if (!rc)
		rc = read_raw(j->wire, WIRE_PREFIX, &in, deadline);
	if (rc)
		return broke(j, rc);
	rc = check_greeting(j, in);
	if (rc)
		return rc;
	rc = read_raw(j->wire, WIRE_GREETING, &in, deadline);
	if (rc)
		return broke(j, rc);
	wire_take(j->wire, WIRE_GREETING);
	wire_heard(&shake, ROLE_STORE, in);

	wire_mac(mac, key, ROLE_RANK, &shake);
	rc = write_raw(j->wire, mac, sizeof(mac), deadline);
	if (!rc)
		rc = read_raw(j->wire, WIRE_VERDICT, &in, deadline);
	if (rc)
		return broke(j, rc);
	wire_take(j->wire, WIRE_VERDICT);
	wire_mac(mac, key, ROLE_STORE, &shake);
	rc = check_verdict(j, in, mac);
	if (!rc && wire_session(&j->wire->crypt, key, ROLE_RANK, &shake))
		rc = vbn_fail(-EPROTO, STORE_PREFIX " has no valid key");
	return rc;
}

/* The store's own words. */
static int refused(struct join *j, struct wire_reader *r)
{
	enum wire_refusal refusal = (enum wire_refusal)wire_get_u8(r);
	char line[480];

	wire_get_text(r, line, sizeof(line));
	switch (refusal) {
	case REFUSED_TIMEOUT:
		return vbn_fail(-ETIMEDOUT, "%s", line);
	case REFUSED_DEATH:
		return vbn_fail(-ECONNRESET, "%s", line);
	case REFUSED_BUSY:
		snprintf(j->why, sizeof(j->why), "%.150s", line);
		return RETRY;
	case REFUSED_SHAPE:
	default:
		return vbn_fail(-EPROTO, "%s", line);
	}
}

static int send_join(struct join *j)
{
	char host[WIRE_HOST_MAX + 1] = "";
	struct wire_frame *f;
	int left = net_remaining(j->deadline);
	int all = j->opts->timeout_ms;
	int rc;

	if (gethostname(host, sizeof(host)))
		host[0] = '\0';
	f = wire_frame(FRAME_JOIN, 16 + strlen(host));
	wire_put_u32(f, (uint32_t)j->opts->rank);
	wire_put_u32(f, (uint32_t)j->opts->nranks);
	wire_put_u32(f, left < 0 ? UINT32_MAX : (uint32_t)left);
	wire_put_u32(f, all < 0 ? UINT32_MAX : (uint32_t)all);
	wire_put_bytes(f, host, strlen(host));
	rc = wire_queue(j->wire, f);
	return rc ? rc : flush_all(j->wire, j->deadline);
}

static int join_and_wait(struct join *j)
{
	struct wire_reader reader;
	enum wire_type type;
	int rc = send_join(j), next;

	while (!rc) {
		next = wire_next(j->wire, &type, &reader);
		if (next < 0 ||
		    (next && type != FRAME_STARTED && type != FRAME_REFUSED))
			return vbn_fail(-EPROTO, STORE_PREFIX
					" sent what this version does not "
					"know: use the same verbena on all "
					"ranks");
		if (next && type == FRAME_STARTED) {
			*j->dead_ms = wire_get_u32(&reader);
			return 0;
		}
		if (next)
			return refused(j, &reader);
		rc = more(j->wire, SIZE_MAX, j->deadline);
	}
	if (rc == -ETIMEDOUT)
		return vbn_fail(rc,
				STORE_PREFIX " did not start the job within "
					     "%d ms: is rank 0 stopped?",
				j->opts->timeout_ms);
	return vbn_fail(-ECONNRESET,
			"rank 0 ended while the job was starting: see its own "
			"error");
}

/* One try. RETRY, or final. */
static int attempt(struct join *j, const uint8_t key[WIRE_KEY])
{
	int fd, rc;

	rc = rendezvous_connect(j->opts, j->deadline, &fd, j->why,
				sizeof(j->why));
	if (rc)
		return rc;
	wire_init(j->wire, fd);
	rc = shake_hands(j, key);
	if (!rc)
		rc = join_and_wait(j);
	if (rc)
		wire_close(j->wire);
	return rc;
}

static void back_off(int64_t ms, int64_t deadline)
{
	int left = net_remaining(deadline);
	struct timespec t;

	if (left >= 0 && left < ms)
		ms = left;
	t = (struct timespec){.tv_sec = ms / 1000,
			      .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

static int join_remote(struct join *j)
{
	int64_t pause = BACKOFF_MIN;
	uint8_t key[WIRE_KEY];
	int rc;

	wire_key(key, j->opts->secret);
	for (;;) {
		rc = attempt(j, key);
		if (rc != RETRY)
			break;
		back_off(pause, j->deadline);
		if (!net_remaining(j->deadline))
			break; /* and the last try's reason stays */
		pause = net_sooner(2 * pause, BACKOFF_MAX);
	}
	sodium_memzero(key, sizeof(key));
	if (rc != RETRY)
		return rc;
	return vbn_fail(-ETIMEDOUT,
			"rank 0 did not take rank %d in within %d ms at %s "
			"port %u (%s): check that rank 0 runs, that the "
			"address is its own, and that no firewall is between",
			j->opts->rank, j->opts->timeout_ms, j->opts->host,
			(unsigned)j->opts->port, j->why);
}

int control_join(struct wire *wire, const struct control_options *opts,
		 int local_fd, int64_t deadline, uint32_t *dead_ms)
{
	struct join j = {.opts = opts,
			 .wire = wire,
			 .deadline = deadline,
			 .dead_ms = dead_ms};
	int rc;

	if (local_fd < 0)
		return join_remote(&j);
	wire_init(wire, local_fd);
	rc = join_and_wait(&j);
	if (rc)
		wire_close(wire);
	return rc == RETRY ? -EPROTO : rc;
}
