/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stranger at a job's door, for strangers.sh: attacks the port of rank 0's
 * store on 127.0.0.1 for some seconds, at most, and says "ready" once the
 * attack is complete; from then on it goes on.
 *
 * usage: stranger PORT ATTACK SECONDS
 * ATTACK: secret (a wrong one, again and again), noise, drip (one byte a
 * second), half (a handshake without its end), replay (another's good greeting
 * and a proof), flood (1,000 connections that say nothing), churn (connect and
 * leave, as fast as may be), huge (lengths of 4 GB)
 */
#include "control_crypt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MANY 1000

static uint16_t port;
static int64_t end;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
	struct timespec t = {.tv_sec = ms / 1000,
			     .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

static int dial(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void say(int fd, const void *data, size_t len)
{
	/* It may have been shown the door. */
	if (fd >= 0 && send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}

static bool hear(int fd, void *data, size_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return fd >= 0 && poll(&p, 1, 1000) == 1 &&
	       recv(fd, data, len, MSG_WAITALL) == (ssize_t)len;
}

static void ready(void)
{
	static bool said;

	if (!said)
		printf("ready\n");
	said = true;
	fflush(stdout);
}

/* A greeting and a proof; 1: it was let in. */
static int try_secret(const char *secret)
{
	uint8_t greeting[WIRE_GREETING], key[WIRE_KEY], mac[WIRE_MAC];
	uint8_t verdict[WIRE_VERDICT] = {0};
	struct wire_shake shake;
	int fd = dial(), in = 0;

	wire_key(key, secret);
	wire_greeting(greeting, &shake, ROLE_RANK);
	say(fd, greeting, sizeof(greeting));
	if (hear(fd, greeting, sizeof(greeting))) {
		wire_heard(&shake, ROLE_STORE, greeting);
		wire_mac(mac, key, ROLE_RANK, &shake);
		say(fd, mac, sizeof(mac));
		if (hear(fd, verdict, sizeof(verdict)))
			in = wire_verdict_code(verdict) == VERDICT_ACCEPTED;
	}
	if (fd >= 0)
		close(fd);
	return in;
}

static void attack_secret(void)
{
	for (int i = 0; now_ms() < end; i++) {
		if (try_secret("wrong"))
			exit(3);
		if (i == 100)
			ready();
	}
}

static void fill(uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)rand();
}

/* What @n connections say at first, and each again when it was closed. */
static void hold(int n, void (*greet)(int fd), void (*more)(int fd, int turn))
{
	int *fds = calloc((size_t)n, sizeof(*fds));
	char byte;

	if (!fds)
		exit(1);
	for (int i = 0; i < n; i++) {
		fds[i] = dial();
		greet(fds[i]);
	}
	ready();
	for (int turn = 0; now_ms() < end; turn++) {
		for (int i = 0; i < n; i++) {
			ssize_t got = fds[i] < 0 ? 0
						 : recv(fds[i], &byte, 1,
							MSG_DONTWAIT);

			if (got > 0 || (got < 0 && errno == EAGAIN)) {
				more(fds[i], turn);
				continue;
			}
			if (fds[i] >= 0)
				close(fds[i]);
			fds[i] = dial();
			greet(fds[i]);
		}
		pause_ms(100);
	}
	free(fds);
}

static void nothing(int fd)
{
	(void)fd;
}

static void nothing_more(int fd, int turn)
{
	(void)fd, (void)turn;
}

static void noise(int fd)
{
	uint8_t bytes[4096];

	fill(bytes, sizeof(bytes));
	say(fd, bytes, sizeof(bytes));
}

static void half(int fd)
{
	uint8_t greeting[WIRE_GREETING];
	struct wire_shake shake;

	wire_greeting(greeting, &shake, ROLE_RANK);
	say(fd, greeting, sizeof(greeting));
}

/* The next byte of a greeting that would be good, every tenth turn. */
static void drip(int fd, int turn)
{
	uint8_t greeting[WIRE_GREETING];
	struct wire_shake shake;

	wire_greeting(greeting, &shake, ROLE_RANK);
	if (turn % 10 == 0 && turn / 10 < WIRE_GREETING)
		say(fd, greeting + turn / 10, 1);
}

/* As it might have been heard from a good rank, with its proof. */
static void replay(int fd)
{
	static uint8_t heard[WIRE_GREETING + WIRE_MAC];
	struct wire_shake shake;

	if (!heard[0]) {
		wire_greeting(heard, &shake, ROLE_RANK);
		fill(heard + WIRE_GREETING, WIRE_MAC);
	}
	say(fd, heard, sizeof(heard));
}

static void huge(int fd)
{
	uint8_t bytes[WIRE_GREETING + WIRE_MAC + 4];
	struct wire_shake shake;

	memset(bytes, 0xff, sizeof(bytes));
	wire_greeting(bytes, &shake, ROLE_RANK);
	say(fd, bytes, sizeof(bytes));
}

static void attack_churn(void)
{
	for (int i = 0; now_ms() < end; i++) {
		int fd = dial();

		if (fd >= 0)
			close(fd);
		if (i == 1000)
			ready();
	}
}

static void attack(const char *name)
{
	if (!strcmp(name, "secret"))
		attack_secret();
	else if (!strcmp(name, "noise"))
		hold(200, noise, nothing_more);
	else if (!strcmp(name, "drip"))
		hold(200, nothing, drip);
	else if (!strcmp(name, "half"))
		hold(200, half, nothing_more);
	else if (!strcmp(name, "replay"))
		hold(200, replay, nothing_more);
	else if (!strcmp(name, "huge"))
		hold(200, huge, nothing_more);
	else if (!strcmp(name, "flood"))
		hold(MANY, nothing, nothing_more);
	else if (!strcmp(name, "churn"))
		attack_churn();
	else
		exit(2);
}

int main(int argc, char **argv)
{
	struct rlimit limit;

	if (argc != 4 || wire_setup())
		return 2;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	port = (uint16_t)strtol(argv[1], NULL, 10);
	end = now_ms() + 1000 * strtol(argv[3], NULL, 10);
	attack(argv[2]);
	return 0;
}
