/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server of descriptors by itself: who gets one, and who does not: another
 * user's process, one without the cookie, one that asks for what there is not.
 */
#include "error.h"
#include "providers/shm/share.h"

#include "cunit_run.h"

#include <CUnit/CUnit.h>

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static struct share *share;
static int memory, id;

static int open_share(void)
{
	memory = memfd_create("test", MFD_CLOEXEC);
	if (memory < 0 || write(memory, "right", 6) != 6 || share_open(&share))
		return 1;
	id = share_export(share, memory);
	return id <= 0;
}

static int close_share(void)
{
	share_close(share);
	close(memory);
	return 0;
}

/* Asks without looking who serves. Returns bytes received: 0, none. */
static ssize_t ask_blindly(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct {
		uint8_t cookie[SHARE_COOKIE];
		uint32_t id;
	} request = {.id = (uint32_t)id};
	size_t len = strnlen((const char *)share_address(share), SHARE_NAME);
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ssize_t n = -1;
	char byte;

	memcpy(sun.sun_path + 1, share_address(share), len);
	memcpy(request.cookie, share_address(share) + SHARE_NAME, SHARE_COOKIE);
	len += offsetof(struct sockaddr_un, sun_path) + 1;
	if (!connect(sock, (struct sockaddr *)&sun, (socklen_t)len) &&
	    send(sock, &request, sizeof(request), MSG_NOSIGNAL) > 0)
		n = recv(sock, &byte, 1, 0);
	if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
		n = 0;
	close(sock);
	return n;
}

static void handed_out(void)
{
	int fd = share_fetch(share_address(share), id);
	char text[6] = "";

	CU_ASSERT_EQUAL(ask_blindly(), 1); /* so asking like that works */
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(pread(fd, text, sizeof(text), 0), sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "right");
	close(fd);
}

static void unknown_ids(void)
{
	static const int ids[] = {0, -1, 1000, 1 << 30};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		CU_ASSERT_EQUAL(share_fetch(share_address(share), ids[i]),
				-ENOENT);
	CU_ASSERT_EQUAL(share_fetch(share_address(share), id + 1), -ENOENT);
}

static void withdrawn(void)
{
	int other = share_export(share, memory);

	CU_ASSERT_FATAL(other > 0 && other != id);
	share_withdraw(share, other);
	CU_ASSERT_EQUAL(share_fetch(share_address(share), other), -ENOENT);
	handed_out();
}

static void wrong_cookie(void)
{
	uint8_t address[SHARE_BYTES];

	memcpy(address, share_address(share), SHARE_BYTES);
	address[SHARE_BYTES - 1] ^= 1;
	CU_ASSERT_EQUAL(share_fetch(address, id), -EACCES);
	handed_out();
}

static void nobody_there(void)
{
	uint8_t address[SHARE_BYTES] = "verbena-no-such-process";

	CU_ASSERT_EQUAL(share_fetch(address, id), -ECONNREFUSED);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "does not hand out"));
}

/* In the child: 0 when it is refused with a line that names the users. */
static int fetch_as_nobody(void)
{
	if (setresuid(NOBODY, NOBODY, NOBODY))
		return 2;
	if (share_fetch(share_address(share), id) != -EACCES)
		return 3;
	if (ask_blindly() != 0)
		return 5;
	return strstr(vbn_error(), "is user 0's, this one user 65534's") ? 0
									 : 4;
}

/* @fn returns 0 when all is well. */
static void in_child(int (*fn)(void))
{
	pid_t child = fork();
	int status = -1;

	CU_ASSERT_FATAL(child >= 0);
	if (child == 0)
		_exit(fn());
	CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
	CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void another_user(void)
{
	if (geteuid() != 0) {
		CU_PASS("needs root, to become another user");
		return;
	}
	in_child(fetch_as_nobody);
}

/* One descriptor is left, which the socket takes. */
static int fetch_without_descriptors(void)
{
	int next = dup(memory);
	struct rlimit most = {(rlim_t)next + 1, (rlim_t)next + 1};

	close(next);
	if (setrlimit(RLIMIT_NOFILE, &most))
		return 2;
	if (share_fetch(share_address(share), id) != -EMFILE)
		return 3;
	return strstr(vbn_error(), "ulimit -n") ? 0 : 4;
}

static void no_descriptors(void)
{
	in_child(fetch_without_descriptors);
}

int main(void)
{
	CU_TestInfo tests[] = {{"handed out", handed_out},
			       {"unknown ids", unknown_ids},
			       {"withdrawn", withdrawn},
			       {"wrong cookie", wrong_cookie},
			       {"nobody there", nobody_there},
			       {"another user", another_user},
			       {"no descriptors", no_descriptors},
			       CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {
		{"share", open_share, close_share, NULL, NULL, tests},
		CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
