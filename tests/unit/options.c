/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job's options: what comes from the caller, what from which variable, and
 * that each bad value is named in the error.
 */
#include "options.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <unistd.h>

static struct job_config config;

static void clear(void)
{
	static const char *const names[] = {
		"VBN_RANK",
		"VBN_SIZE",
		"VBN_ADDRESS",
		"VBN_SECRET",
		"VBN_SECRET_FILE",
		"VBN_PROVIDER",
		"VBN_TIMEOUT_MS",
		"VBN_LISTEN_FD",
		"VBN_INSECURE",
		"VBN_DEAD_MS",
		"RANK",
		"WORLD_SIZE",
		"MASTER_ADDR",
		"MASTER_PORT",
		"VBN_SOCKET_IFNAME",
		"VBN_LOCAL_SIZE",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

/* "NAME=value NAME=value": the whole environment that matters. */
static void environment(const char *text)
{
	char copy[512], *save = NULL, *word, *value;

	clear();
	snprintf(copy, sizeof(copy), "%s", text);
	for (word = strtok_r(copy, " ", &save); word;
	     word = strtok_r(NULL, " ", &save)) {
		value = strchr(word, '=');
		*value++ = '\0';
		setenv(word, value, 1);
	}
}

static int resolve(const char *text, const struct vbn_job_options *in)
{
	int rc;

	environment(text);
	job_config_wipe(&config);
	rc = job_options_resolve(in, &config);
	clear();
	return rc;
}

static void fails(const char *text, const char *words)
{
	int rc = resolve(text, NULL);

	if (rc >= 0 || !strstr(vbn_error(), words))
		fprintf(stderr, "\n%s: %d \"%s\" lacks \"%s\"\n", text, rc,
			vbn_error(), words);
	CU_ASSERT(rc < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), words));
}

static void test_alone(void)
{
	CU_ASSERT_EQUAL(resolve("", NULL), 0);
	CU_ASSERT(config.rank == 0 && config.nranks == 1);
	CU_ASSERT_EQUAL(config.timeout_ms, 30000);
	CU_ASSERT_EQUAL(config.listen_fd, -1);
	CU_ASSERT_STRING_EQUAL(config.secret, "");
	CU_ASSERT_STRING_EQUAL(config.provider, "");
	CU_ASSERT_STRING_EQUAL(config.host, "");
}

static void test_own_names(void)
{
	CU_ASSERT_EQUAL(resolve("VBN_RANK=3 VBN_SIZE=8 VBN_ADDRESS=node:4711 "
				"VBN_SECRET=s VBN_PROVIDER=ucx "
				"VBN_TIMEOUT_MS=500 RANK=9 WORLD_SIZE=99 "
				"MASTER_ADDR=other MASTER_PORT=1",
				NULL),
			0);
	CU_ASSERT(config.rank == 3 && config.nranks == 8);
	CU_ASSERT_STRING_EQUAL(config.host, "node");
	CU_ASSERT_EQUAL(config.port, 4711);
	CU_ASSERT_STRING_EQUAL(config.secret, "s");
	CU_ASSERT_STRING_EQUAL(config.provider, "ucx");
	CU_ASSERT_EQUAL(config.timeout_ms, 500);
	CU_ASSERT_EQUAL(resolve("VBN_RANK=0 VBN_SIZE=2 "
				"VBN_ADDRESS=[fe80::1]:65535 VBN_SECRET=s "
				"VBN_PROVIDER= VBN_TIMEOUT_MS=-1",
				NULL),
			0);
	CU_ASSERT_STRING_EQUAL(config.host, "fe80::1");
	CU_ASSERT_EQUAL(config.port, 65535);
	CU_ASSERT_EQUAL(config.timeout_ms, -1);
}

static void test_place(void)
{
	CU_ASSERT_EQUAL(resolve("VBN_RANK=1 VBN_SIZE=2 VBN_ADDRESS=a:1 "
				"VBN_SECRET=s VBN_SOCKET_IFNAME=ib0 "
				"VBN_LOCAL_SIZE=1",
				NULL),
			0);
	CU_ASSERT_STRING_EQUAL(config.ifname, "ib0");
	CU_ASSERT_EQUAL(config.launch.several_hosts, YES);
	CU_ASSERT_EQUAL(config.launch.rank0_here, NO);
	CU_ASSERT_EQUAL(resolve("VBN_SOCKET_IFNAME=", NULL), 0);
	CU_ASSERT_STRING_EQUAL(config.ifname, "");
	CU_ASSERT_EQUAL(config.launch.several_hosts, UNKNOWN);
}

static void test_torchrun_names(void)
{
	CU_ASSERT_EQUAL(resolve("RANK=1 WORLD_SIZE=2 MASTER_ADDR=::1 "
				"MASTER_PORT=29500 VBN_SECRET=s",
				NULL),
			0);
	CU_ASSERT(config.rank == 1 && config.nranks == 2);
	CU_ASSERT_STRING_EQUAL(config.host, "::1");
	CU_ASSERT_EQUAL(config.port, 29500);
	/* An address of our own next to torchrun's ranks. */
	CU_ASSERT_EQUAL(resolve("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a "
				"MASTER_PORT=1 VBN_ADDRESS=b:2 VBN_SECRET=s",
				NULL),
			0);
	CU_ASSERT_STRING_EQUAL(config.host, "b");
}

static void test_bad(void)
{
	fails("VBN_RANK=x VBN_SIZE=2", "VBN_RANK is \"x\"");
	fails("VBN_RANK=1x VBN_SIZE=2", "VBN_RANK is \"1x\"");
	fails("VBN_RANK=-1 VBN_SIZE=2", "VBN_RANK is \"-1\"");
	fails("VBN_RANK=+1 VBN_SIZE=2", "VBN_RANK is \"+1\"");
	fails("VBN_RANK=99999999999999999999 VBN_SIZE=2", "VBN_RANK");
	fails("VBN_RANK=0 VBN_SIZE=0", "VBN_SIZE is \"0\"");
	fails("VBN_RANK=0 VBN_SIZE=65537", "VBN_SIZE");
	fails("VBN_RANK=2 VBN_SIZE=2", "less than VBN_SIZE");
	fails("VBN_RANK=2", "VBN_SIZE is not");
	fails("VBN_SIZE=2", "VBN_RANK is not");
	fails("RANK=2 WORLD_SIZE=2", "less than WORLD_SIZE");
	fails("WORLD_SIZE=2", "RANK is not");
	fails("RANK=0 WORLD_SIZE=2 VBN_SECRET=s", "needs rank 0's address");
	fails("RANK=0 WORLD_SIZE=2 VBN_SECRET=s MASTER_ADDR=a",
	      "MASTER_PORT is not");
	fails("RANK=0 WORLD_SIZE=2 VBN_SECRET=s MASTER_PORT=1",
	      "MASTER_ADDR is not");
	fails("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0",
	      "MASTER_PORT is \"0\"");
	fails("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65536",
	      "MASTER_PORT");
	fails("VBN_ADDRESS=a", "host:port");
	fails("VBN_ADDRESS=a:", "VBN_ADDRESS is \"\"");
	fails("VBN_ADDRESS=:1", "the host has");
	fails("VBN_ADDRESS=fe80::1:4711", "brackets");
	fails("VBN_ADDRESS=[::1]", "[address]:port");
	fails("VBN_ADDRESS=[]:1", "[address]:port");
	fails("VBN_ADDRESS=[", "[address]:port");
	fails("VBN_PROVIDER=tcp", "shm, verbs or ucx");
	fails("VBN_TIMEOUT_MS=0", "VBN_TIMEOUT_MS is 0");
	fails("VBN_TIMEOUT_MS=1s", "VBN_TIMEOUT_MS is \"1s\"");
	fails("VBN_LISTEN_FD=x VBN_ADDRESS=a:1", "VBN_LISTEN_FD");
	fails("VBN_INSECURE=yes", "VBN_INSECURE");
	fails("VBN_SOCKET_IFNAME=sixteen-letters0", "at most 15 bytes");
	fails("VBN_LOCAL_SIZE=2", "VBN_LOCAL_SIZE is \"2\"");
}

static void write_file(const char *path, const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(text, 1, len, f), len);
	fclose(f);
}

static void test_secret(void)
{
	static const char job[] = "VBN_RANK=0 VBN_SIZE=2 VBN_ADDRESS=a:1";
	char path[] = "/tmp/verbena-options-XXXXXX", text[256];
	int fd = mkstemp(path);

	CU_ASSERT_FATAL(fd >= 0);
	close(fd);
	fails(job, "has no secret");
	snprintf(text, sizeof(text), "%s VBN_INSECURE=0", job);
	fails(text, "has no secret");
	snprintf(text, sizeof(text), "%s VBN_INSECURE=1", job);
	CU_ASSERT_EQUAL(resolve(text, NULL), 0);
	CU_ASSERT_STRING_EQUAL(config.secret, "");

	snprintf(text, sizeof(text), "%s VBN_SECRET_FILE=%s", job, path);
	write_file(path, "", 0);
	fails(text, "is empty");
	write_file(path, "\n", 1);
	fails(text, "is empty");
	write_file(path, "a\0b", 3);
	fails(text, "zero byte");
	write_file(path, "file secret\n", 12);
	CU_ASSERT_EQUAL(resolve(text, NULL), 0);
	CU_ASSERT_STRING_EQUAL(config.secret, "file secret");
	snprintf(text, sizeof(text), "%s VBN_SECRET=s VBN_SECRET_FILE=%s", job,
		 path);
	CU_ASSERT_EQUAL(resolve(text, NULL), 0);
	CU_ASSERT_STRING_EQUAL(config.secret, "s");
	/* A secret that others may read is none. */
	snprintf(text, sizeof(text), "%s VBN_SECRET_FILE=%s", job, path);
	chmod(path, 0640);
	fails(text, "is open to others (mode 640): chmod 600 it");
	chmod(path, 0604);
	fails(text, "is open to others");
	chmod(path, 0400);
	CU_ASSERT_EQUAL(resolve(text, NULL), 0);
	unlink(path);
	snprintf(text, sizeof(text), "%s VBN_SECRET_FILE=%s", job, path);
	fails(text, "No such file");
	snprintf(text, sizeof(text), "%s VBN_SECRET_FILE=/tmp", job);
	fails(text, "is no file");
}

static void test_dead(void)
{
	CU_ASSERT_EQUAL(resolve("", NULL), 0);
	CU_ASSERT_EQUAL(config.dead_ms, 5000);
	CU_ASSERT_EQUAL(resolve("VBN_DEAD_MS=0", NULL), 0);
	CU_ASSERT_EQUAL(config.dead_ms, 0);
	CU_ASSERT_EQUAL(resolve("VBN_DEAD_MS=200", NULL), 0);
	CU_ASSERT_EQUAL(config.dead_ms, 200);
	CU_ASSERT_EQUAL(resolve("VBN_DEAD_MS=3600000", NULL), 0);
	fails("VBN_DEAD_MS=199", "it must be 0, for no heartbeats, or at "
				 "least 200");
	fails("VBN_DEAD_MS=3600001", "from 0 to 3600000");
	fails("VBN_DEAD_MS=-1", "VBN_DEAD_MS is \"-1\"");
	fails("VBN_DEAD_MS=5s", "VBN_DEAD_MS is \"5s\"");
}

static void test_options(void)
{
	struct vbn_job_options o = {.size = sizeof(o),
				    .rank = 2,
				    .nranks = 3,
				    .address = "h:9",
				    .secret = "mine",
				    .provider = "shm",
				    .timeout_ms = 7};

	CU_ASSERT_EQUAL(resolve("VBN_RANK=x VBN_SIZE=y VBN_ADDRESS=z "
				"VBN_SECRET=other VBN_PROVIDER=bad "
				"VBN_TIMEOUT_MS=q",
				&o),
			0);
	CU_ASSERT(config.rank == 2 && config.nranks == 3);
	CU_ASSERT_STRING_EQUAL(config.host, "h");
	CU_ASSERT_EQUAL(config.port, 9);
	CU_ASSERT_STRING_EQUAL(config.secret, "mine");
	CU_ASSERT_STRING_EQUAL(config.provider, "shm");
	CU_ASSERT_EQUAL(config.timeout_ms, 7);

	o.provider = "tcp";
	CU_ASSERT_EQUAL(resolve("", &o), -EINVAL);
	o.provider = NULL;
	o.rank = 3;
	CU_ASSERT_EQUAL(resolve("", &o), -EINVAL);
	o.rank = 1;
	o.listen_fd = 8;
	CU_ASSERT_EQUAL(resolve("", &o), -EINVAL);
	o.listen_fd = 0;
	o.secret = "";
	CU_ASSERT_EQUAL(resolve("", &o), -EINVAL);
	o.size = 0;
	CU_ASSERT_EQUAL(resolve("", &o), -EINVAL);
}

/* An older program's structure ends earlier: the rest is as if 0. */
static void test_short_options(void)
{
	struct vbn_job_options o = {
		.size = offsetof(struct vbn_job_options, address),
		.rank = 1,
		.nranks = 2,
		.address = (const char *)1,
		.secret = (const char *)1,
	};

	CU_ASSERT_EQUAL(resolve("VBN_ADDRESS=h:1 VBN_SECRET=s", &o), 0);
	CU_ASSERT_STRING_EQUAL(config.host, "h");
}

static void test_listener(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct vbn_job_options o = {
		.size = sizeof(o), .nranks = 2, .secret = "s", .listen_fd = 5};
	char text[256];

	CU_ASSERT_FATAL(fd >= 0 &&
			!bind(fd, (struct sockaddr *)&addr, sizeof(addr)) &&
			!listen(fd, 1) &&
			!getsockname(fd, (struct sockaddr *)&addr, &len));
	snprintf(text, sizeof(text),
		 "VBN_RANK=0 VBN_SIZE=2 VBN_SECRET=s "
		 "VBN_ADDRESS=127.0.0.1:%u VBN_LISTEN_FD=%d",
		 (unsigned)ntohs(addr.sin_port), fd);
	fails("VBN_RANK=0 VBN_SIZE=2 VBN_SECRET=s VBN_ADDRESS=127.0.0.1:9 "
	      "VBN_LISTEN_FD=0",
	      "VBN_LISTEN_FD is 0, which is no listening socket");
	CU_ASSERT_EQUAL(resolve(text, NULL), 0);
	CU_ASSERT_EQUAL(config.listen_fd, fd);
	text[9] = '1'; /* only rank 0 listens */
	CU_ASSERT_EQUAL(resolve(text, NULL), 0);
	CU_ASSERT_EQUAL(config.listen_fd, -1);
	text[9] = '0';
	close(fd); /* a first job had it */
	CU_ASSERT_EQUAL(resolve(text, NULL), 0);
	CU_ASSERT_EQUAL(config.listen_fd, -1);
	CU_ASSERT_EQUAL_FATAL(open("/dev/null", O_RDONLY), fd);
	CU_ASSERT_EQUAL(resolve(text, NULL), 0);
	CU_ASSERT_EQUAL(config.listen_fd, -1);
	close(fd);
	CU_ASSERT_EQUAL(resolve("", &o), 0);
	CU_ASSERT_EQUAL(config.listen_fd, 4);
}

static CU_TestInfo tests[] = {
	{"nothing set", test_alone},
	{"own names", test_own_names},
	{"heartbeats", test_dead},
	{"torchrun's names", test_torchrun_names},
	{"hosts and interface", test_place},
	{"bad values", test_bad},
	{"secret", test_secret},
	{"options", test_options},
	{"options of an older program", test_short_options},
	{"listening socket", test_listener},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"options", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};
	int status = run_suites(suites);

	job_config_wipe(&config);
	return status;
}
