/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting through PMIx: rank 0 listens, and gives to all, as lines of a text,
 * the addresses of its host, the port, and the job's secret; "-" for what the
 * user has set. If it cannot, "!" and why, so that nobody waits for it.
 */
#include "env.h"
#include "error.h"
#include "meeting.h"
#include "options_impl.h"
#include "pmix_module.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET_BYTES 32
#define NOTHING	     "-"

/* ---- rank 0 ---- */

static int rank0_listen(struct job_config *c, char list[REACH_TEXT])
{
	const char *why = c->launch.why[0] ? c->launch.why
					   : "the launcher does not say that "
					     "all ranks are here";
	int fd = meeting_open(c->launch.several_hosts != NO, c->ifname, why,
			      list, &c->port);

	if (fd < 0)
		return fd;
	c->listen_fd = fd;
	c->listen_made = true;
	return option_host("PMIx", list, strcspn(list, "/"), c);
}

static void make_secret(char hex[2 * SECRET_BYTES + 1])
{
	unsigned char bytes[SECRET_BYTES];

	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2hex(hex, 2 * SECRET_BYTES + 1, bytes, sizeof(bytes));
	sodium_memzero(bytes, sizeof(bytes));
}

static int write_text(struct job_config *c, bool address, bool secret,
		      char *text)
{
	char list[REACH_TEXT] = NOTHING, hex[2 * SECRET_BYTES + 1] = NOTHING;
	int rc = address ? rank0_listen(c, list) : 0;

	if (rc)
		return rc;
	if (secret)
		make_secret(hex);
	snprintf(text, VBN_PMIX_TEXT_MAX, "%s\n%u\n%s\n", list,
		 (unsigned)c->port, hex);
	sodium_memzero(hex, sizeof(hex));
	return 0;
}

/* ---- all ---- */

/* The line at *@p, cut off there; NULL: there is none. */
static char *next_line(char **p)
{
	char *line = *p, *end = strchr(line, '\n');

	if (!end)
		return NULL;
	*end = '\0';
	*p = end + 1;
	return line;
}

static int bad_text(void)
{
	return vbn_fail(-EPROTO, "PMIx: what rank 0 has given is not "
				 "verbena's: do all ranks run the same "
				 "version?");
}

static int take_address(struct job_config *c, const char *list,
			const char *port_text)
{
	char host[INET6_ADDRSTRLEN];
	struct netifs ifs;
	long port;
	bool found;
	int rc;

	if (!strcmp(list, NOTHING))
		return vbn_fail(-EINVAL,
				"rank 0 has an address of its own: set "
				"VBN_ADDRESS on all ranks or on none");
	if (option_number("rank 0's port", port_text, 1, UINT16_MAX, &port))
		return bad_text();
	rc = netifs_read(&ifs);
	if (rc)
		return rc;
	found = reach_choose(list, &ifs, c->ifname, host);
	netifs_free(&ifs);
	if (!found)
		return bad_text();
	c->port = (uint16_t)port;
	vbn_log(VBN_INFO, "rank 0's host has %s: the way there is %s", list,
		host);
	return option_host("PMIx", host, strlen(host), c);
}

static int take_secret(struct job_config *c, const char *secret)
{
	if (!strcmp(secret, NOTHING))
		return vbn_fail(-EINVAL,
				"rank 0 has a secret of its own: set "
				"VBN_SECRET or VBN_SECRET_FILE on all ranks or "
				"on none");
	if (strlen(secret) != 2 * SECRET_BYTES)
		return bad_text();
	c->secret = strdup(secret);
	return c->secret ? 0
			 : vbn_fail(-ENOMEM, "no memory for the job's secret");
}

static int read_text(struct job_config *c, bool address, bool secret,
		     char *text)
{
	char *list, *port, *hex;
	int rc;

	if (text[0] == '!')
		return vbn_fail(-ECONNABORTED, "rank 0 opens no job: %s",
				text + 1);
	list = next_line(&text);
	port = list ? next_line(&text) : NULL;
	hex = port ? next_line(&text) : NULL;
	rc = hex ? 0 : bad_text();
	if (!rc && address && c->rank)
		rc = take_address(c, list, port);
	if (!rc && secret)
		rc = take_secret(c, hex);
	return rc;
}

void option_pmix_end(struct job_config *c)
{
	if (c->pmix)
		c->pmix->end(c->timeout_ms);
	c->pmix = NULL;
}

/* Rank 0's own failure goes before that of the exchange. */
static int meet(struct job_config *c, bool address, bool secret)
{
	char text[VBN_PMIX_TEXT_MAX] = "", why[400];
	int failed = 0, rc;

	if (c->rank == 0)
		failed = write_text(c, address, secret, text);
	if (failed) {
		snprintf(why, sizeof(why), "%s", vbn_error());
		snprintf(text, sizeof(text), "!%s", why);
	}
	rc = c->pmix->exchange(text, c->timeout_ms);
	if (failed)
		rc = vbn_fail(failed, "%s", why);
	else if (!rc)
		rc = read_text(c, address, secret, text);
	sodium_memzero(text, sizeof(text));
	return rc;
}

int option_meet(const struct vbn_job_options *in, struct job_config *c)
{
	bool address = !in->address && !env_text("VBN_ADDRESS");
	bool secret = !in->secret && !env_text("VBN_SECRET") &&
		      !env_text("VBN_SECRET_FILE");
	int rc = 0;

	if (c->pmix && c->nranks > 1)
		rc = meet(c, address, secret);
	option_pmix_end(c);
	return rc;
}
