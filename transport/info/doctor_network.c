/* SPDX-License-Identifier: BSD-3-Clause */
/* What the doctor says of the network by which ranks find each other. */
#include "info.h"

#include <string.h>

static void hostname(const struct info_network *net, struct problems *problems)
{
	struct problem *p;

	if (!net->resolves) {
		p = problem_add(problems, SEVERITY_WARNING, "hostname-unknown",
				"this host's name, %s, cannot be looked up: a "
				"job's address must not use it",
				net->hostname);
		problem_fix(p, "add it to /etc/hosts or DNS, or name rank 0's "
			       "host by its address");
	} else if (net->resolves_to_loopback_only) {
		p = problem_add(problems, SEVERITY_WARNING, "hostname-loopback",
				"this host's name, %s, is %s here: ranks "
				"elsewhere do not find what listens there%s",
				net->hostname, net->resolves_to,
				net->choice_fails
					? ""
					: " (verbena listens on every "
					  "interface then)");
		problem_fix(p, "give it its own address in /etc/hosts instead "
			       "of 127.0.1.1, or name rank 0's host by its "
			       "address; VBN_SOCKET_IFNAME chooses an "
			       "interface");
	}
}

static void interfaces(const struct info_network *net,
		       struct problems *problems)
{
	if (!netifs_loopback_up(&net->ifs))
		problem_fix(problem_add(problems, SEVERITY_ERROR,
					"loopback-down",
					"the loopback interface is down: jobs "
					"on this machine (verbena-run) cannot "
					"start"),
			    "ip link set lo up");
	if (!netifs_routable(&net->ifs))
		problem_fix(problem_add(problems, SEVERITY_WARNING,
					"no-interface",
					"no network interface that other hosts "
					"reach is up: jobs run on this "
					"machine only"),
			    "give an interface an address (ip addr add) and "
			    "switch it on (ip link set INTERFACE up); docker: "
			    "not --network none");
}

static void chosen(const struct info_network *net, struct problems *problems)
{
	bool known = false;

	if (!net->ifname[0])
		return;
	for (size_t i = 0; i < net->ifs.n; i++)
		known |= !strcmp(net->ifs.list[i].name, net->ifname) &&
			 net->ifs.list[i].up && net->ifs.list[i].addr.len;
	if (!known)
		problem_fix(problem_add(problems, SEVERITY_ERROR,
					"socket-ifname",
					"VBN_SOCKET_IFNAME is %s, which is not "
					"an interface that is up and has an "
					"address",
					net->ifname),
			    "set it to one of the interfaces above, or unset "
			    "it");
}

void doctor_network(const struct info *info, struct problems *problems)
{
	interfaces(&info->network, problems);
	chosen(&info->network, problems);
	hostname(&info->network, problems);
}
