/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The report for programs; docs/info.md lists the keys, which stay. What is
 * not known, or without limit, is null. A failed allocation shows in the end:
 * cJSON_Add*() into NULL gives NULL and is counted.
 */
#include "info.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct json {
	bool failed;
};

static void check(struct json *j, const void *item)
{
	j->failed |= !item;
}

/* Length of the UTF-8 character at @p; 0: it is none. */
static size_t character(const unsigned char *p)
{
	/* the least second byte: no longer form of a shorter character, and
	 * the greatest: no surrogate, none above U+10FFFF */
	unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
	unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
	size_t n;

	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4 || p[1] < low || p[1] > high)
		return 0;
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	for (size_t i = 2; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/* What is not UTF-8, as a name of a file may be, becomes '?'. */
static void text(struct json *j, cJSON *o, const char *key, const char *value)
{
	char *copy = strdup(value);

	for (char *p = copy; p && *p;) {
		size_t n = character((const unsigned char *)p);

		if (!n)
			*p = '?';
		p += n ? n : 1;
	}
	check(j, copy ? cJSON_AddStringToObject(o, key, copy) : NULL);
	free(copy);
}

/* "" means none. */
static void text_or_null(struct json *j, cJSON *o, const char *key,
			 const char *value)
{
	if (value[0])
		text(j, o, key, value);
	else
		check(j, cJSON_AddNullToObject(o, key));
}

static void flag(struct json *j, cJSON *o, const char *key, bool value)
{
	check(j, cJSON_AddBoolToObject(o, key, value));
}

static void number(struct json *j, cJSON *o, const char *key, double value)
{
	check(j, cJSON_AddNumberToObject(o, key, value));
}

static void limit(struct json *j, cJSON *o, const char *key, uint64_t value)
{
	if (value == LIMITS_NONE)
		check(j, cJSON_AddNullToObject(o, key));
	else
		number(j, o, key, (double)value);
}

static cJSON *object(struct json *j, cJSON *o, const char *key)
{
	cJSON *child = cJSON_AddObjectToObject(o, key);

	check(j, child);
	return child;
}

static cJSON *array(struct json *j, cJSON *o, const char *key)
{
	cJSON *child = cJSON_AddArrayToObject(o, key);

	check(j, child);
	return child;
}

static cJSON *element(struct json *j, cJSON *list)
{
	cJSON *child = cJSON_CreateObject();

	check(j, child);
	if (child && !cJSON_AddItemToArray(list, child)) {
		cJSON_Delete(child);
		j->failed = true;
		return NULL;
	}
	return child;
}

static void add_providers(struct json *j, const struct info *info, cJSON *root)
{
	cJSON *list = array(j, root, "providers");

	for (int i = 0; i < INFO_PROVIDERS; i++) {
		cJSON *o = element(j, list);

		text(j, o, "name", info->providers[i].name);
		flag(j, o, "usable", info->providers[i].usable);
		text_or_null(j, o, "why", info->providers[i].why);
	}
	text_or_null(j, root, "forced_provider", info->forced);
}

/* ---- devices ---- */

static void add_gids(struct json *j, const struct inspect_port *p, cJSON *o)
{
	cJSON *list = array(j, o, "gids");
	size_t unreadable = 0;

	for (size_t i = 0; i < p->ngids; i++) {
		const struct inspect_gid *g = &p->gids[i];
		cJSON *gid;

		if (!g->readable) {
			unreadable++;
			continue;
		}
		gid = element(j, list);
		number(j, gid, "index", g->index);
		text(j, gid, "type", g->type);
		text(j, gid, "address", g->address);
		flag(j, gid, "chosen", g->chosen);
		text(j, gid, "why", g->why);
	}
	number(j, o, "unreadable_gids", (double)unreadable);
}

static void add_ports(struct json *j, const struct inspect_device *d, cJSON *o)
{
	cJSON *list = array(j, o, "ports");

	for (size_t i = 0; i < d->nports; i++) {
		const struct inspect_port *p = &d->ports[i];
		cJSON *port = element(j, list);

		number(j, port, "number", p->number);
		text(j, port, "state", p->state);
		flag(j, port, "active", p->active);
		flag(j, port, "usable", p->usable);
		flag(j, port, "chosen", p->chosen);
		text_or_null(j, port, "why", p->why);
		text(j, port, "link_layer", p->link_layer);
		text_or_null(j, port, "netdev", p->netdev);
		number(j, port, "rate_gbits", p->gbits);
		number(j, port, "lanes", p->lanes);
		number(j, port, "active_mtu", p->active_mtu);
		number(j, port, "max_mtu", p->max_mtu);
		number(j, port, "lid", p->lid);
		number(j, port, "max_message", (double)p->max_message);
		flag(j, port, "pkey_found", p->pkey_found);
		add_gids(j, p, port);
	}
}

static void add_caps(struct json *j, const struct inspect_device *d, cJSON *o)
{
	cJSON *caps = object(j, o, "caps");

	number(j, caps, "max_qp", d->max_qp);
	number(j, caps, "max_qp_wr", d->max_qp_wr);
	number(j, caps, "max_sge", d->max_sge);
	number(j, caps, "max_srq", d->max_srq);
	number(j, caps, "max_srq_wr", d->max_srq_wr);
	number(j, caps, "max_cq", d->max_cq);
	number(j, caps, "max_cqe", d->max_cqe);
	number(j, caps, "max_mr", d->max_mr);
	limit(j, caps, "max_mr_size", d->max_mr_size);
	number(j, caps, "max_pd", d->max_pd);
	number(j, caps, "max_reads", d->max_reads);
	if (d->inline_bytes < 0)
		check(j, cJSON_AddNullToObject(caps, "inline_bytes"));
	else
		number(j, caps, "inline_bytes", d->inline_bytes);
	flag(j, caps, "atomics", d->has_atomics);
	text(j, caps, "atomics_scope", d->atomics);
	flag(j, caps, "wr_builders", d->has_wr_api);
	flag(j, caps, "odp", d->has_odp);
}

static void add_devices(struct json *j, const struct info *info, cJSON *root)
{
	cJSON *list = array(j, root, "devices");

	for (size_t i = 0; info->verbs && i < info->verbs->ndevices; i++) {
		const struct inspect_device *d = &info->verbs->devices[i];
		cJSON *o = element(j, list);

		text(j, o, "name", d->name);
		flag(j, o, "openable", d->openable);
		flag(j, o, "usable", d->usable);
		flag(j, o, "admitted", d->admitted);
		text_or_null(j, o, "why", d->why);
		if (!d->openable)
			continue;
		flag(j, o, "software", d->software);
		number(j, o, "vendor_id", d->vendor_id);
		number(j, o, "part_id", d->vendor_part_id);
		number(j, o, "hardware", d->hw_version);
		text_or_null(j, o, "firmware", d->firmware);
		text(j, o, "guid", d->guid);
		add_caps(j, d, o);
		add_ports(j, d, o);
	}
	text_or_null(j, root, "devices_error", info->verbs_error);
}

/* ---- network and limits ---- */

static void add_network(struct json *j, const struct info_network *net,
			cJSON *root)
{
	cJSON *o = object(j, root, "rendezvous"), *list;

	text(j, o, "hostname", net->hostname);
	text_or_null(j, o, "resolves_to", net->resolves_to);
	text_or_null(j, o, "socket_ifname", net->ifname);
	text_or_null(j, o, "choice", net->choice);
	text_or_null(j, o, "choice_why", net->choice_why);
	flag(j, o, "choice_fails", net->choice_fails);
	list = array(j, o, "interfaces");
	for (size_t i = 0; i < net->ifs.n; i++) {
		const struct netif *n = &net->ifs.list[i];
		cJSON *e = element(j, list);

		text(j, e, "name", n->name);
		text_or_null(j, e, "address", n->text);
		number(j, e, "prefix", n->prefix);
		flag(j, e, "up", n->up);
		flag(j, e, "loopback", n->loopback);
		flag(j, e, "routable", netif_routable(n));
		flag(j, e, "chosen", netif_chosen(net, n));
		number(j, e, "mtu", n->mtu);
		number(j, e, "mbits", n->mbits);
	}
}

static void add_used(struct json *j, cJSON *root, const char *key, bool known,
		     uint64_t max, uint64_t used)
{
	cJSON *o;

	if (!known) {
		check(j, cJSON_AddNullToObject(root, key));
		return;
	}
	o = object(j, root, key);
	limit(j, o, "limit", max);
	number(j, o, "used", (double)used);
}

/* A container's files may say that there is more left than there is. */
static uint64_t used(uint64_t total, uint64_t left)
{
	return left < total ? total - left : 0;
}

static void add_huge(struct json *j, cJSON *root, const char *key, bool known,
		     const struct limits_huge *h)
{
	cJSON *o;

	if (!known) {
		check(j, cJSON_AddNullToObject(root, key));
		return;
	}
	o = object(j, root, key);
	number(j, o, "total", (double)h->total);
	number(j, o, "available", (double)limits_huge_left(h));
}

static void add_limits(struct json *j, const struct info_limits *l, cJSON *root)
{
	cJSON *o = object(j, root, "limits"), *list;

	add_used(j, o, "memlock", l->memlock_known,
		 l->memlock.unbounded ? LIMITS_NONE : l->memlock.soft,
		 l->memlock.locked + l->memlock.pinned);
	add_used(j, o, "mappings", l->maps_known, l->maps.limit, l->maps.used);
	add_used(j, o, "open_files", l->files_known, l->files.soft,
		 l->files.used);
	add_used(j, o, "cgroup_memory", l->cgroup_known, l->cgroup.limit,
		 l->cgroup.used);
	add_used(j, o, "cgroup_pids", l->pids_known, l->pids.limit,
		 l->pids.used);
	add_used(j, o, "memory", l->memory_known, l->memory.total,
		 used(l->memory.total, l->memory.available));
	add_used(j, o, "dev_shm", l->shm_known, l->dev_shm,
		 used(l->dev_shm, l->dev_shm_free));
	add_huge(j, o, "huge_2m", l->huge_2m_known, &l->huge_2m);
	add_huge(j, o, "huge_1g", l->huge_1g_known, &l->huge_1g);
	text_or_null(j, o, "thp_shmem", l->thp_shmem);
	list = array(j, o, "numa_nodes");
	for (int i = 0; i < l->nnodes && i < INFO_NODES; i++) {
		cJSON *node = element(j, list);

		number(j, node, "node", l->nodes[i].node);
		text(j, node, "processors", l->nodes[i].cpus);
		number(j, node, "memory", (double)l->nodes[i].memory);
		number(j, node, "free", (double)l->nodes[i].free);
	}
}

/* ---- the rest ---- */

static void add_system(struct json *j, const struct info_system *s, cJSON *root)
{
	cJSON *o = object(j, root, "versions"), *list;

	text(j, o, "verbena", s->verbena);
	text_or_null(j, o, "libibverbs", s->verbs);
	text_or_null(j, o, "ucx", s->ucx);
	text(j, o, "jemalloc", s->jemalloc);
	text_or_null(j, o, "kernel", s->kernel);
	o = object(j, root, "processor");
	text_or_null(j, o, "model", s->cpu);
	number(j, o, "usable", s->processors);
	list = array(j, o, "features");
	for (size_t i = 0; i < s->nfeatures; i++)
		if (!cJSON_AddItemToArray(list,
					  cJSON_CreateString(s->features[i])))
			j->failed = true;
	flag(j, root, "container", s->container);
}

static void add_variables(struct json *j, const struct info *info, cJSON *root)
{
	cJSON *list = array(j, root, "environment");

	for (size_t i = 0; i < info->nvariables; i++) {
		const struct info_variable *v = &info->variables[i];
		cJSON *o = element(j, list);

		text(j, o, "name", v->name);
		text(j, o, "value", v->value);
		flag(j, o, "known", v->known);
		text_or_null(j, o, "error", v->why);
	}
}

static void add_problems(struct json *j, const struct problems *problems,
			 cJSON *root)
{
	cJSON *list = array(j, root, "problems");

	for (size_t i = 0; i < problems->n; i++) {
		const struct problem *p = &problems->list[i];
		cJSON *o = element(j, list);

		text(j, o, "id", p->id);
		text(j, o, "severity", severity_name(p->severity));
		text(j, o, "what", p->what);
		text(j, o, "fix", p->fix);
	}
}

int print_json(const struct info *info, const struct problems *problems,
	       FILE *out)
{
	struct json j = {.failed = false};
	cJSON *root = cJSON_CreateObject();
	char *all;

	flag(&j, root, "usable", info_usable(info));
	add_providers(&j, info, root);
	add_devices(&j, info, root);
	add_network(&j, &info->network, root);
	add_limits(&j, &info->limits, root);
	add_system(&j, &info->system, root);
	add_variables(&j, info, root);
	add_problems(&j, problems, root);
	all = j.failed ? NULL : cJSON_Print(root);
	cJSON_Delete(root);
	if (!all)
		return -ENOMEM;
	fprintf(out, "%s\n", all);
	free(all);
	return 0;
}
