/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gathering: providers (by opening a job of one rank and a context with each,
 * so that what is told is what a job would be told), devices, and the
 * environment.
 */
#include "info.h"

#include "env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <verbena/transport.h>

extern char **environ;

static void gather_provider(struct info_provider *p, const char *name)
{
	struct vbn_job_options options = {
		.size = sizeof(options),
		.rank = 0,
		.nranks = 1,
		.provider = name,
		.timeout_ms = 10000,
	};
	struct vbn_job *job = NULL;
	struct vbn_ctx *ctx = NULL;

	p->name = name;
	p->usable =
		!vbn_job_open(&job, &options) && !vbn_ctx_open(&ctx, job, NULL);
	if (!p->usable)
		snprintf(p->why, sizeof(p->why), "%s", vbn_error());
	if (ctx)
		vbn_ctx_close(ctx);
	if (job)
		vbn_job_close(job);
}

static void gather_verbs(struct info *info)
{
	if (inspect_verbs(&info->verbs)) {
		info->verbs = NULL;
		snprintf(info->verbs_error, sizeof(info->verbs_error), "%s",
			 vbn_error());
	}
}

/* ---- environment ---- */

static void fill_variable(struct info_variable *v, const char *pair)
{
	const char *value = strchr(pair, '=') + 1, *nearest;
	const struct env_entry *e;

	snprintf(v->name, sizeof(v->name), "%.*s", (int)(value - 1 - pair),
		 pair);
	e = env_find(v->name);
	v->known = env_known(v->name);
	nearest = v->known ? NULL : env_nearest(v->name);
	snprintf(v->nearest, sizeof(v->nearest), "%s", nearest ? nearest : "");
	snprintf(v->value, sizeof(v->value), "%s",
		 e && e->secret ? "(not shown)" : value);
	if (e && env_check_one(e)) {
		v->bad = true;
		snprintf(v->why, sizeof(v->why), "%s", vbn_error());
	}
}

static bool is_ours(const char *pair)
{
	const char *value = strchr(pair, '=');

	return !strncmp(pair, "VBN_", 4) && value && value[1];
}

static void gather_variables(struct info *info)
{
	size_t n = 0;

	for (char **e = environ; *e; e++)
		n += is_ours(*e);
	info->variables = calloc(n ? n : 1, sizeof(*info->variables));
	if (!info->variables)
		return;
	for (char **e = environ; *e; e++)
		if (is_ours(*e))
			fill_variable(&info->variables[info->nvariables++], *e);
}

void info_gather(struct info *info)
{
	static const char *const names[] = {"shm", "verbs", "ucx"};
	const char *forced = getenv("VBN_PROVIDER");

	memset(info, 0, sizeof(*info));
	snprintf(info->forced, sizeof(info->forced), "%s",
		 forced ? forced : "");
	gather_variables(info);
	/* The log would say on standard error what is told below. */
	setenv("VBN_LOG", "error", 0);
	gather_system(&info->system);
	gather_limits(&info->limits);
	gather_network(&info->network);
	gather_verbs(info);
	/* of the launcher's job; those that try the providers have one rank */
	unsetenv("VBN_LOCAL_SIZE");
	for (int i = 0; i < INFO_PROVIDERS; i++)
		gather_provider(&info->providers[i], names[i]);
	gather_versions(&info->system);
}

void info_free(struct info *info)
{
	if (info->verbs)
		inspect_free(info->verbs);
	netifs_free(&info->network.ifs);
	free(info->variables);
}
