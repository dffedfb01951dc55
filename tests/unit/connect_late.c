/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer's messages about an earlier connection, which come after a reconnect:
 * each is refused by its generation. Rank 0 is a real job over shm; rank 1 is
 * played by hand, and publishes rank 0's own address as its own.
 */
#include "control_cluster.h"

#include "provider.h"
#include "wire.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ASK = 1, OFFER, ANSWER, READY, REFUSE, CLOSE }; /* connect.c's */

static struct {
	uint16_t port;
	int listen_fd, fd; /* fd: of rank 1 */
	struct vbn_job *job;
	struct vbn_ctx *ctx;
	int rc;
} t;

static void *open_job(void *arg)
{
	char address[32];
	struct vbn_job_options o = {.size = sizeof(o),
				    .rank = 0,
				    .nranks = 2,
				    .address = address,
				    .secret = "late",
				    .provider = "shm",
				    .timeout_ms = 10000,
				    .listen_fd = t.listen_fd + 1};

	(void)arg;
	snprintf(address, sizeof(address), "127.0.0.1:%u", (unsigned)t.port);
	t.rc = vbn_job_open(&t.job, &o);
	return NULL;
}

/* The next frame of @type from the store; its body's length. */
static size_t expect(uint8_t type, uint8_t *body, size_t room)
{
	size_t len = 0;
	int got;

	do
		got = raw_read(t.fd, body, room, &len, 5000);
	while (got > 0 && got != type);
	CU_ASSERT_EQUAL_FATAL(got, type);
	return len;
}

/* Rank 1's context 0 is reached like rank 0's. */
static void publish(void)
{
	static const char from[] = "\001c/0/0";
	uint8_t body[RAW_FRAME_MAX], *p = put_u64(body, 1);
	size_t len, key = strlen(from);

	*p++ = 1; /* wait */
	*p++ = (uint8_t)key;
	memcpy(p, from, key);
	raw_frame(t.fd, FRAME_GET, body, 10 + key);
	len = expect(FRAME_REPLY, body, sizeof(body));
	CU_ASSERT_FATAL(len > 9 && body[8] == STATUS_OK);
	/* id and status give way to id, key's length and key */
	memmove(body + 9 + key, body + 9, len - 9);
	body[8] = (uint8_t)key;
	memcpy(body + 9, "\001c/1/0", key);
	raw_frame(t.fd, FRAME_SET, body, len + key);
	expect(FRAME_REPLY, body, sizeof(body));
}

static void begin(void)
{
	uint8_t body[64];
	pthread_t thread;

	t.listen_fd = listen_anywhere(&t.port);
	pthread_create(&thread, NULL, open_job, NULL);
	t.fd = raw_connect(t.port);
	CU_ASSERT_EQUAL_FATAL(raw_shake(t.fd, "late"), VERDICT_ACCEPTED);
	raw_join(t.fd, 1, 2);
	expect(FRAME_STARTED, body, sizeof(body));
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL_FATAL(t.rc, 0);
	CU_ASSERT_EQUAL_FATAL(vbn_ctx_open(&t.ctx, t.job, NULL), 0);
	publish();
}

static void end(void)
{
	raw_frame(t.fd, FRAME_GOODBYE, "", 0);
	vbn_ctx_close(t.ctx);
	CU_ASSERT_EQUAL(vbn_job_close(t.job), 0);
	close(t.fd);
}

static void say(unsigned type, uint64_t generation)
{
	uint8_t body[8 + 17];
	uint8_t *p = put_u32(put_u32(body, 0), type);

	p = put_u32(put_u32(p, 0), 0);
	p = put_u64(p, generation);
	*p = PROVIDER_SHM;
	raw_frame(t.fd, FRAME_SEND, body, sizeof(body));
}

/* Rank 0 says @type to us: of which generation? */
static uint64_t hear(unsigned type)
{
	uint8_t body[RAW_FRAME_MAX];
	size_t len;

	do
		len = expect(FRAME_MESSAGE, body, sizeof(body));
	while (get_u32(body + 4) != type);
	CU_ASSERT_FATAL(len >= 8 + 17);
	return get_u64(body + 16);
}

/* The endpoint's state @ms later, or once it is not @while_. */
static int status_after(struct vbn_ep *ep, int while_, int ms)
{
	int end_ms = clock_ms() + ms;

	while (vbn_ep_status(ep) == while_ && clock_ms() < end_ms)
		vbn_ctx_wait(t.ctx, 10);
	return vbn_ep_status(ep);
}

static void test_late_reply(void)
{
	struct vbn_ep *ep, *again;
	uint64_t first, second;

	begin();
	CU_ASSERT_EQUAL_FATAL(vbn_ep_open(&ep, t.ctx, 1, 0), 0);
	first = hear(OFFER);
	say(ANSWER, first - 1);
	say(READY, first);
	say(ANSWER, first + 1);
	CU_ASSERT_EQUAL(status_after(ep, -EINPROGRESS, 100), -EINPROGRESS);
	say(ANSWER, first);
	CU_ASSERT_EQUAL(status_after(ep, -EINPROGRESS, 5000), 0);
	CU_ASSERT_EQUAL(hear(READY), first);
	/* Nor do others end it, or make it again. */
	say(CLOSE, first - 1);
	say(ANSWER, first);
	say(REFUSE, first - 1);
	CU_ASSERT_EQUAL(status_after(ep, 0, 400), 0);
	say(CLOSE, first);
	CU_ASSERT_EQUAL(status_after(ep, 0, 5000), -ECONNRESET);

	CU_ASSERT_EQUAL_FATAL(vbn_ep_open(&again, t.ctx, 1, 0), 0);
	second = hear(OFFER);
	CU_ASSERT(second > first);
	say(ANSWER, first);
	say(CLOSE, first);
	CU_ASSERT_EQUAL(status_after(again, -EINPROGRESS, 400), -EINPROGRESS);
	say(ANSWER, second);
	CU_ASSERT_EQUAL(status_after(again, -EINPROGRESS, 5000), 0);
	CU_ASSERT_EQUAL(hear(READY), second);
	vbn_ep_close(again);
	vbn_ep_close(ep);
	end();
}

static CU_TestInfo tests[] = {
	{"a reply of an earlier connection", test_late_reply},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	return run_suite("connecting and late messages", tests);
}
