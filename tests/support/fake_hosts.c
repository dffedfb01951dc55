/* SPDX-License-Identifier: BSD-3-Clause */
/* See fake_hosts.h. */
#include "fake_hosts.h"

#include <errno.h>
#include <string.h>

static void add_host(char name, unsigned host, const char *subnets)
{
	char list[64] = "";

	for (unsigned i = 0; subnets[i]; i++) {
		struct fake_config config;
		size_t len = strlen(list);

		fake_config_init(&config, host);
		snprintf(config.name, sizeof(config.name), "%c%u", name, i);
		snprintf(list + len, sizeof(list) - len, "%s%s", i ? "," : "",
			 config.name);
		config.ports[0].ngids = 1;
		config.ports[0].gids[0] =
			fake_gid_ipv4(IBV_GID_TYPE_ROCE_V2, 10,
				      (unsigned)(subnets[i] - '0'), 0, host);
		if (i == 1) { /* rails may differ */
			config.ports[0].active_mtu = IBV_MTU_1024;
			config.max_inline = 64;
			config.flush = FAKE_FLUSH_SIGNALLED;
		}
		config.builders = host == 2;
		config.late_data = host == 1;
		fake_device_add(&config);
	}
	setenv("VBN_IB_HCA", list, 1);
}

void hosts_open(struct hosts *h, const char *here, const char *there,
		size_t bytes)
{
	memset(h, 0, sizeof(*h));
	add_host('a', 1, here);
	bench_open(&h->a, &provider_verbs);
	add_host('b', 2, there);
	bench_open(&h->b, &provider_verbs);
	unsetenv("VBN_IB_HCA");
	region_open(&h->a, &h->src, bytes, VBN_ACCESS_ALL);
	region_open(&h->b, &h->dst, bytes, VBN_ACCESS_ALL);
	pair_connect(&h->a, &h->x, &h->a.a, &h->y, &h->b.a);
}

void hosts_close(struct hosts *h)
{
	side_close(&h->x, -ECANCELED);
	side_close(&h->y, -ECANCELED);
	region_close(&h->a, &h->src);
	region_close(&h->b, &h->dst);
	bench_close(&h->a);
	bench_close(&h->b);
	CHECK(fake_reset() == 0);
}

void hosts_progress(struct hosts *h)
{
	bench_progress(&h->a);
	bench_progress(&h->b);
}

int hosts_wait(struct hosts *h, struct vbn_op *op)
{
	for (int i = 0; i < 10000 && op->status == -EINPROGRESS; i++)
		hosts_progress(h);
	return op->status;
}
