/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interfaces, what this host's name means here, and where rank 0 would listen:
 * asked of the same function as a job asks.
 */
#include "info.h"

#include "control_net.h"
#include "rendezvous.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <verbena/job.h>

#define LOOKUP_MS 3000

static void resolve_self(struct info_network *net, struct rendezvous_facts *f)
{
	size_t len = 0;
	char text[NETIF_TEXT];

	if (net_resolve(net->hostname, 1, net_deadline(LOOKUP_MS), f->found,
			RENDEZVOUS_ADDRS, &f->nfound))
		return;
	net->resolves = net->resolves_to_loopback_only = true;
	for (size_t i = 0; i < f->nfound; i++) {
		net->resolves_to_loopback_only &= net_addr_local(&f->found[i]);
		net_addr_text(&f->found[i], text);
		if (len < sizeof(net->resolves_to))
			len += (size_t)snprintf(net->resolves_to + len,
						sizeof(net->resolves_to) - len,
						"%s%s", len ? ", " : "", text);
	}
}

static void choose(struct info_network *net, const struct rendezvous_facts *f)
{
	struct rendezvous_plan plan;
	char text[NETIF_TEXT];

	if (rendezvous_choose(f, &plan)) {
		net->choice_fails = true;
		snprintf(net->choice_why, sizeof(net->choice_why), "%s",
			 vbn_error());
		return;
	}
	net->choice_any = plan.any;
	if (plan.any)
		snprintf(net->choice, sizeof(net->choice), "every interface");
	else if (plan.n)
		snprintf(net->choice, sizeof(net->choice), "%s",
			 net_addr_text(&plan.addr[0], text));
	if (plan.why[0])
		snprintf(net->choice_why, sizeof(net->choice_why), "%s",
			 plan.why);
	else
		snprintf(net->choice_why, sizeof(net->choice_why),
			 "host name %s is this address%s%s", net->hostname,
			 net->ifname[0] ? ", of VBN_SOCKET_IFNAME " : "",
			 net->ifname);
}

void gather_network(struct info_network *net)
{
	const char *ifname = getenv("VBN_SOCKET_IFNAME");
	struct rendezvous_facts f = {
		.nranks = 2,
		.port = 1,
		.host = net->hostname,
		.ifname = net->ifname,
		.launch = {YES, YES, "as with ranks elsewhere"},
	};

	if (gethostname(net->hostname, sizeof(net->hostname) - 1))
		snprintf(net->hostname, sizeof(net->hostname), "localhost");
	snprintf(net->ifname, sizeof(net->ifname), "%s", ifname ? ifname : "");
	if (netifs_read(&net->ifs))
		return;
	for (size_t i = 0; i < net->ifs.n; i++)
		netif_details(&net->ifs.list[i]);
	f.ifs = net->ifs;
	resolve_self(net, &f);
	if (net->resolves)
		choose(net, &f);
}
