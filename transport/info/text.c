/* SPDX-License-Identifier: BSD-3-Clause */
/* The report for people at a terminal. */
#include "info.h"

#include <string.h>

#define WIDTH 79

const char *bytes_text(uint64_t bytes, char text[32])
{
	static const char *const units[] = {"bytes", "KiB", "MiB",
					    "GiB",   "TiB", "PiB"};
	double value = (double)bytes;
	size_t u = 0;

	if (bytes == LIMITS_NONE) {
		snprintf(text, 32, "unlimited");
		return text;
	}
	for (; value >= 1024 && u < 5; u++)
		value /= 1024;
	if (value == (double)(uint64_t)value)
		snprintf(text, 32, "%.0f %s", value, units[u]);
	else
		snprintf(text, 32, "%.1f %s", value, units[u]);
	return text;
}

/* @text in lines of at most WIDTH, all but the first behind @indent spaces. */
static void wrap(FILE *out, int column, int indent, const char *text)
{
	bool first = true;

	while (*text) {
		int len = (int)strcspn(text, " ");

		if (!first && column + 1 + len > WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		} else if (!first) {
			fputc(' ', out);
			column++;
		}
		fprintf(out, "%.*s", len, text);
		column += len;
		text += len;
		text += strspn(text, " ");
		first = false;
	}
	fputc('\n', out);
}

/* "  name      text", wrapped. */
static void line(FILE *out, const char *name, const char *text)
{
	if (text[0])
		wrap(out, fprintf(out, "  %-13s ", name), 16, text);
	else
		fprintf(out, "  %s\n", name);
}

/* ---- providers and versions ---- */

static void print_providers(const struct info *info, FILE *out)
{
	char text[INFO_LINE + 32];

	fprintf(out, "Providers\n");
	for (int i = 0; i < INFO_PROVIDERS; i++) {
		const struct info_provider *p = &info->providers[i];

		snprintf(text, sizeof(text), "%s%s",
			 p->usable ? "usable" : "not usable: ", p->why);
		line(out, p->name, text);
	}
	if (info->forced[0])
		line(out, "VBN_PROVIDER", info->forced);
}

static void print_versions(const struct info_system *s, FILE *out)
{
	char text[256];
	size_t len = 0;

	fprintf(out, "\nVersions\n");
	line(out, "verbena", s->verbena);
	line(out, "libibverbs", s->verbs[0] ? s->verbs : "not loaded");
	line(out, "UCX", s->ucx[0] ? s->ucx : "not loaded");
	line(out, "jemalloc", s->jemalloc);
	line(out, "kernel", s->kernel);
	snprintf(text, sizeof(text), "%s, %d usable here%s",
		 s->cpu[0] ? s->cpu : "unknown", s->processors,
		 s->container ? ", in a container" : "");
	line(out, "processors", text);
	text[0] = '\0';
	for (size_t i = 0; i < s->nfeatures && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s",
					i ? " " : "", s->features[i]);
	line(out, "features", text);
}

/* ---- devices ---- */

static void print_gid(const struct inspect_gid *g, FILE *out)
{
	char text[INFO_LINE];
	int column = fprintf(out, "      GID %-3u%s ", g->index,
			     g->chosen ? "*" : " ");

	snprintf(text, sizeof(text), "%s %s: %s", g->type, g->address, g->why);
	wrap(out, column, 14, text);
}

/* Many devices have long tables of which little is in use. */
static void print_gids(const struct inspect_port *p, FILE *out)
{
	size_t unreadable = 0;

	for (size_t i = 0; i < p->ngids; i++)
		if (p->gids[i].readable)
			print_gid(&p->gids[i], out);
		else
			unreadable++;
	if (unreadable)
		fprintf(out,
			"      %zu more GIDs are empty or cannot be "
			"read\n",
			unreadable);
}

static void print_port(const struct inspect_port *p, FILE *out)
{
	char text[INFO_LINE];
	size_t len;
	int column = fprintf(out, "    port %u%s ", p->number,
			     p->chosen ? "*" : " ");

	len = (size_t)snprintf(text, sizeof(text), "%s, %s", p->state,
			       p->link_layer);
	if (p->netdev[0])
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					" on %s", p->netdev);
	if (p->gbits > 0)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					", %g Gb/s (%u lanes)", p->gbits,
					p->lanes);
	len += (size_t)snprintf(text + len, sizeof(text) - len,
				", MTU %u of %u", p->active_mtu, p->max_mtu);
	if (p->lid)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					", LID %u", p->lid);
	snprintf(text + len, sizeof(text) - len, "%s%s", p->why[0] ? "; " : "",
		 p->why);
	wrap(out, column, 12, text);
	print_gids(p, out);
}

static void print_caps(const struct inspect_device *d, FILE *out)
{
	char text[INFO_LINE], bytes[32];

	snprintf(text, sizeof(text),
		 "max_qp %d, max_qp_wr %d, max_cqe %d, max_srq_wr %d, max_sge "
		 "%d, max_mr %d (size: %s), reads in flight %d",
		 d->max_qp, d->max_qp_wr, d->max_cqe, d->max_srq_wr, d->max_sge,
		 d->max_mr, bytes_text(d->max_mr_size, bytes), d->max_reads);
	wrap(out, fprintf(out, "    "), 6, text);
	if (d->inline_bytes >= 0)
		snprintf(text, sizeof(text), "inline data: %d bytes granted",
			 d->inline_bytes);
	else
		snprintf(text, sizeof(text), "inline data: unknown (%s)",
			 d->inline_why);
	wrap(out, fprintf(out, "    "), 6, text);
	snprintf(text, sizeof(text), "%s%s%s",
		 d->has_atomics ? "atomics: "
				: "no atomics: fetch-add and "
				  "compare-swap give EOPNOTSUPP",
		 d->has_atomics ? d->atomics : "",
		 d->has_wr_api ? "; ibv_wr_* builders" : "");
	wrap(out, fprintf(out, "    "), 6, text);
}

static void print_device(const struct inspect_device *d, FILE *out)
{
	char text[INFO_LINE];
	int column = fprintf(out, "  %s: ", d->name);

	if (!d->openable) {
		wrap(out, column, 4, d->why);
		return;
	}
	snprintf(text, sizeof(text),
		 "%s%s%s%s; vendor 0x%x, part %u, hardware %u, firmware %s, "
		 "node %s",
		 d->usable ? "usable" : "not usable: ", d->usable ? "" : d->why,
		 d->admitted ? "" : " (excluded by VBN_IB_HCA)",
		 d->software ? ", software" : "", d->vendor_id,
		 d->vendor_part_id, d->hw_version,
		 d->firmware[0] ? d->firmware : "-", d->guid);
	wrap(out, column, 4, text);
	for (size_t i = 0; i < d->nports; i++)
		print_port(&d->ports[i], out);
	print_caps(d, out);
}

static void print_devices(const struct info *info, FILE *out)
{
	fprintf(out, "\nRDMA devices (* what a job would use)\n");
	if (!info->verbs) {
		line(out, "unknown", info->verbs_error);
		return;
	}
	if (!info->verbs->ndevices)
		line(out, "none", "");
	for (size_t i = 0; i < info->verbs->ndevices; i++)
		print_device(&info->verbs->devices[i], out);
}

/* ---- network ---- */

static void print_netif(const struct info_network *net, const struct netif *i,
			FILE *out)
{
	char text[200];
	size_t len;

	len = (size_t)snprintf(text, sizeof(text), "%s",
			       i->text[0] ? i->text : "no address");
	if (i->text[0])
		len += (size_t)snprintf(text + len, sizeof(text) - len, "/%u",
					i->prefix);
	len += (size_t)snprintf(text + len, sizeof(text) - len, ", %s",
				i->up		 ? "up"
				: i->switched_on ? "on, but no carrier"
						 : "down");
	if (i->loopback)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					", loopback: this machine only");
	else if (i->link_local)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					", link-local");
	if (i->mbits)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					", %d Mb/s", i->mbits);
	snprintf(text + len, sizeof(text) - len, ", MTU %u%s", i->mtu,
		 netif_chosen(net, i) ? "; rank 0 would listen here *" : "");
	line(out, i->name, text);
}

static void print_network(const struct info_network *net, FILE *out)
{
	char text[2 * INFO_LINE];

	fprintf(out, "\nInterfaces for the rendezvous (the job's address being "
		     "this host's name)\n");
	for (size_t i = 0; i < net->ifs.n; i++)
		print_netif(net, &net->ifs.list[i], out);
	snprintf(text, sizeof(text), "%s, which is %s", net->hostname,
		 net->resolves ? net->resolves_to : "not known");
	line(out, "host name", text);
	if (net->choice_fails)
		snprintf(text, sizeof(text), "would fail: %s", net->choice_why);
	else if (net->choice[0])
		snprintf(text, sizeof(text), "%s: %s", net->choice,
			 net->choice_why);
	else
		snprintf(text, sizeof(text), "as the job's address says");
	line(out, "rank 0 at", text);
}

/* ---- limits ---- */

static void print_used(FILE *out, const char *name, uint64_t used,
		       uint64_t limit, bool bytes)
{
	char text[128], a[32], b[32];

	if (bytes)
		snprintf(text, sizeof(text), "%s, %s in use",
			 bytes_text(limit, a), bytes_text(used, b));
	else if (limit == LIMITS_NONE)
		snprintf(text, sizeof(text), "unlimited, %llu in use",
			 (unsigned long long)used);
	else
		snprintf(text, sizeof(text), "%llu, %llu in use",
			 (unsigned long long)limit, (unsigned long long)used);
	line(out, name, text);
}

static void print_huge(FILE *out, const char *name, bool known,
		       const struct limits_huge *h)
{
	char text[160] = "the kernel has none";

	if (known)
		snprintf(text, sizeof(text),
			 "%llu pages, %llu can be had now (reserved %llu, "
			 "overcommit %llu)",
			 (unsigned long long)h->total,
			 (unsigned long long)limits_huge_left(h),
			 (unsigned long long)h->reserved,
			 (unsigned long long)h->overcommit);
	line(out, name, text);
}

static void print_memory(const struct info_limits *l, FILE *out)
{
	char text[320], a[32], b[32];

	if (l->memory_known) {
		snprintf(text, sizeof(text), "%s, %s available",
			 bytes_text(l->memory.total, a),
			 bytes_text(l->memory.available, b));
		line(out, "memory", text);
	}
	print_huge(out, "2 MiB pages", l->huge_2m_known, &l->huge_2m);
	print_huge(out, "1 GiB pages", l->huge_1g_known, &l->huge_1g);
	if (l->thp_shmem[0])
		line(out, "THP of memfd", l->thp_shmem);
	if (l->shm_known)
		snprintf(text, sizeof(text), "%s, %s free (not needed)",
			 bytes_text(l->dev_shm, a),
			 bytes_text(l->dev_shm_free, b));
	else
		snprintf(text, sizeof(text), "absent (not needed)");
	line(out, "/dev/shm", text);
	for (int i = 0; i < l->nnodes && i < INFO_NODES; i++) {
		snprintf(text, sizeof(text), "processors %s, %s, %s free",
			 l->nodes[i].cpus, bytes_text(l->nodes[i].memory, a),
			 bytes_text(l->nodes[i].free, b));
		snprintf(a, sizeof(a), "NUMA node %d", l->nodes[i].node);
		line(out, a, text);
	}
}

static void print_limits(const struct info_limits *l, FILE *out)
{
	const char *how = l->memlock.unbounded ? " (CAP_IPC_LOCK: any)" : "";
	char text[160], a[32], b[32];

	fprintf(out, "\nLimits\n");
	if (l->memlock_known) {
		snprintf(text, sizeof(text), "%s%s, %s in use",
			 bytes_text(l->memlock.soft, a), how,
			 bytes_text(l->memlock.locked + l->memlock.pinned, b));
		line(out, "locked memory", text);
	}
	if (l->maps_known)
		print_used(out, "mappings", l->maps.used, l->maps.limit, false);
	if (l->files_known)
		print_used(out, "open files", l->files.used, l->files.soft,
			   false);
	if (l->cgroup_known)
		print_used(out, "cgroup memory", l->cgroup.used,
			   l->cgroup.limit, true);
	if (l->pids_known)
		print_used(out, "cgroup pids", l->pids.used, l->pids.limit,
			   false);
	print_memory(l, out);
}

/* ---- environment, doctor ---- */

static void print_variables(const struct info *info, FILE *out)
{
	char text[INFO_LINE + 160];

	fprintf(out, "\nEnvironment (verbena-info --env lists all)\n");
	if (!info->nvariables)
		line(out, "VBN_*", "none is set");
	for (size_t i = 0; i < info->nvariables; i++) {
		const struct info_variable *v = &info->variables[i];

		snprintf(text, sizeof(text), "= %s%s", v->value,
			 !v->known ? " (unknown variable)"
			 : v->bad  ? " (bad value)"
				   : "");
		line(out, v->name, text);
	}
}

static void print_problems(const struct problems *problems, FILE *out)
{
	char text[INFO_LINE + 64];

	fprintf(out, "\nDoctor\n");
	if (!problems->n)
		line(out, "no problem", "");
	for (size_t i = 0; i < problems->n; i++) {
		const struct problem *p = &problems->list[i];

		snprintf(text, sizeof(text), "%s [%s]", p->what, p->id);
		wrap(out, fprintf(out, "  %-8s", severity_name(p->severity)),
		     10, text);
		wrap(out, fprintf(out, "          "), 12, p->fix);
	}
}

void print_text(const struct info *info, const struct problems *problems,
		FILE *out)
{
	print_providers(info, out);
	print_devices(info, out);
	print_network(&info->network, out);
	print_limits(&info->limits, out);
	print_versions(&info->system, out);
	print_variables(info, out);
	print_problems(problems, out);
}
