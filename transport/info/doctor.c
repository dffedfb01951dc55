/* SPDX-License-Identifier: BSD-3-Clause */
/* The doctor: collects what the rules say, most severe first. Pure. */
#include "info.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *severity_name(enum severity severity)
{
	switch (severity) {
	case SEVERITY_ERROR:
		return "error";
	case SEVERITY_WARNING:
		return "warning";
	case SEVERITY_NOTE:
		break;
	}
	return "note";
}

bool info_usable(const struct info *info)
{
	for (int i = 0; i < INFO_PROVIDERS; i++)
		if (info->providers[i].usable)
			return true;
	return false;
}

bool netif_chosen(const struct info_network *net, const struct netif *netif)
{
	return net->choice_any
		       ? netif_routable(netif)
		       : net->choice[0] && !strcmp(net->choice, netif->text);
}

struct problem *problem_add(struct problems *problems, enum severity severity,
			    const char *id, const char *what, ...)
{
	/* A machine with more than that is read about no further. */
	size_t i =
		problems->n < PROBLEMS_MAX ? problems->n++ : PROBLEMS_MAX - 1;
	struct problem *p = &problems->list[i];
	va_list args;

	p->severity = severity;
	p->id = id;
	p->fix[0] = '\0';
	va_start(args, what);
	vsnprintf(p->what, sizeof(p->what), what, args);
	va_end(args);
	return p;
}

void problem_fix(struct problem *problem, const char *fix, ...)
{
	va_list args;

	va_start(args, fix);
	vsnprintf(problem->fix, sizeof(problem->fix), fix, args);
	va_end(args);
}

/* Nothing usable at all comes before what may explain it. */
static void no_provider(const struct info *info, struct problems *problems)
{
	struct problem *p;

	if (info_usable(info))
		return;
	if (info_bad_variable(info)) {
		p = problem_add(problems, SEVERITY_ERROR, "no-provider",
				"no job can run with this environment");
		problem_fix(p, "correct the variables that follow");
		return;
	}
	p = problem_add(problems, SEVERITY_ERROR, "no-provider",
			"no provider can be used here: no job can run");
	problem_fix(p, "mend what follows; shm needs memfd_create() and Unix "
		       "sockets only, ucx the package libucx0");
}

static void forced_provider(const struct info *info, struct problems *problems)
{
	for (int i = 0; i < INFO_PROVIDERS; i++) {
		const struct info_provider *p = &info->providers[i];

		if (!strcmp(info->forced, p->name) && !p->usable)
			problem_fix(problem_add(problems, SEVERITY_ERROR,
						"forced-provider-unusable",
						"VBN_PROVIDER is %s, which "
						"cannot be used: %s",
						p->name, p->why),
				    "unset VBN_PROVIDER to have the best "
				    "provider that reaches each peer");
	}
}

/* Then no job starts with any provider, and only that is to be mended. */
bool info_bad_variable(const struct info *info)
{
	for (size_t i = 0; i < info->nvariables; i++)
		if (info->variables[i].bad)
			return true;
	return false;
}

/* What a rank's UCX takes of /dev/shm, 4.2 MiB, with room. */
#define UCX_SHM_LEAST ((uint64_t)5 << 20)

static void ucx_unusable(const struct info *info, struct problems *problems)
{
	const struct info_limits *l = &info->limits;
	struct problem *p =
		problem_add(problems, SEVERITY_WARNING, "ucx-unusable",
			    "hosts without RDMA cannot be reached (no UCX): %s",
			    info->providers[INFO_UCX].why);
	char room[32];

	if (l->shm_known && l->dev_shm_free < UCX_SHM_LEAST)
		problem_fix(p,
			    "/dev/shm has room for %s, of which UCX takes "
			    "4.2 MiB a rank: enlarge it (mount -o "
			    "remount,size=1g /dev/shm; docker --shm-size=1g), "
			    "or do without: UCX_TLS=tcp,self",
			    bytes_text(l->dev_shm_free, room));
	else
		problem_fix(p, "install libucx0, and libverbena-ucx.so beside "
			       "libverbena.so (or in verbena/ there); check "
			       "UCX_TLS and UCX_NET_DEVICES");
}

static void other_providers(const struct info *info, struct problems *problems)
{
	const struct info_provider *shm = &info->providers[INFO_SHM];
	const struct info_provider *ucx = &info->providers[INFO_UCX];

	if (info_bad_variable(info))
		return;
	if (!shm->usable)
		problem_fix(problem_add(problems, SEVERITY_WARNING,
					"shm-unusable",
					"ranks of this machine cannot share "
					"memory: %s",
					shm->why),
			    "allow memfd_create() and Unix sockets (seccomp)");
	if (!ucx->usable)
		ucx_unusable(info, problems);
}

static void variables(const struct info *info, struct problems *problems)
{
	for (size_t i = 0; i < info->nvariables; i++) {
		const struct info_variable *v = &info->variables[i];

		if (!v->known)
			problem_fix(problem_add(problems, SEVERITY_WARNING,
						"unknown-variable",
						"%s is set, and nothing reads "
						"it%s%s",
						v->name,
						v->nearest[0] ? ": is it to be "
							      : "",
						v->nearest),
				    "correct its name (verbena-info --env "
				    "lists all) or unset it");
		else if (v->bad)
			problem_fix(problem_add(problems, SEVERITY_ERROR,
						"bad-variable", "%s", v->why),
				    "correct or unset %s: no job starts with "
				    "it",
				    v->name);
	}
}

static int by_severity(const void *a, const void *b)
{
	const struct problem *x = *(const struct problem *const *)a;
	const struct problem *y = *(const struct problem *const *)b;

	if (x->severity != y->severity)
		return x->severity < y->severity ? -1 : 1;
	return x < y ? -1 : x > y; /* keeps the rules' order */
}

static void sort(struct problems *problems)
{
	struct problem *order[PROBLEMS_MAX];
	struct problem *sorted = calloc(PROBLEMS_MAX, sizeof(*sorted));

	if (!sorted)
		return; /* then in the rules' order */
	for (size_t i = 0; i < problems->n; i++)
		order[i] = &problems->list[i];
	qsort(order, problems->n, sizeof(order[0]), by_severity);
	for (size_t i = 0; i < problems->n; i++)
		sorted[i] = *order[i];
	memcpy(problems->list, sorted, problems->n * sizeof(*sorted));
	free(sorted);
}

void doctor(const struct info *info, struct problems *problems)
{
	problems->n = 0;
	no_provider(info, problems);
	forced_provider(info, problems);
	variables(info, problems);
	doctor_network(info, problems);
	doctor_rdma(info, problems);
	other_providers(info, problems);
	doctor_system(info, problems);
	sort(problems);
}
