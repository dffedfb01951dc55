/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine, its kernel, and the versions of the libraries in use. */
#include "info.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <verbena/job.h>

#define CAP_SYS_PTRACE_BIT 19

/* The first line of a file, without its end. */
static bool first_line(const char *path, char *line, size_t room)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(line, (int)room, f);

	if (f)
		fclose(f);
	if (ok)
		line[strcspn(line, "\n")] = '\0';
	return ok;
}

/* The value of the first "KEY : value" line. */
static bool field(const char *path, const char *key, char *value, size_t room)
{
	FILE *f = fopen(path, "re");
	char line[512];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *p = line + strlen(key);

		if (strncmp(line, key, strlen(key)))
			continue;
		p += strspn(p, " \t:");
		snprintf(value, room, "%.*s", (int)strcspn(p, "\n"), p);
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

static void gather_cpu(struct info_system *s)
{
	static const char *const names[] = {"avx2", "fma", "avx512f",
					    "avx512bw"};
	const bool has[] = {
		__builtin_cpu_supports("avx2") != 0,
		__builtin_cpu_supports("fma") != 0,
		__builtin_cpu_supports("avx512f") != 0,
		__builtin_cpu_supports("avx512bw") != 0,
	};
	cpu_set_t set;

	field("/proc/cpuinfo", "model name", s->cpu, sizeof(s->cpu));
	s->processors = sched_getaffinity(0, sizeof(set), &set)
				? (int)sysconf(_SC_NPROCESSORS_ONLN)
				: CPU_COUNT(&set);
	for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
		if (has[i])
			snprintf(s->features[s->nfeatures++], INFO_FEATURE,
				 "%s", names[i]);
}

/* Marks that container engines leave; none is a proof of the contrary. */
static bool in_container(void)
{
	char line[512];

	if (access("/.dockerenv", F_OK) == 0 ||
	    access("/run/.containerenv", F_OK) == 0 ||
	    getenv("KUBERNETES_SERVICE_HOST") || getenv("container"))
		return true;
	return first_line("/proc/1/cgroup", line, sizeof(line)) &&
	       (strstr(line, "docker") || strstr(line, "kubepods") ||
		strstr(line, "containerd"));
}

/* Writing other processes' memory, as the shm provider does for heap memory. */
static void gather_vm_write(struct info_system *s)
{
	char from = 1, to = 0, text[64];
	struct iovec here = {&from, 1}, there = {&to, 1};
	unsigned long long caps = 0;

	s->yama = -1;
	if (first_line("/proc/sys/kernel/yama/ptrace_scope", text,
		       sizeof(text)))
		s->yama = atoi(text);
	if (field("/proc/self/status", "CapEff", text, sizeof(text)))
		caps = strtoull(text, NULL, 16);
	s->ptrace_capable = (caps >> CAP_SYS_PTRACE_BIT) & 1;
	if (process_vm_writev(getpid(), &here, 1, &there, 1, 0) != 1)
		s->vm_write_errno = errno;
}

/* Devices that the kernel shows, whether or not this process may use them. */
static void gather_kernel_devices(struct info_system *s)
{
	DIR *dir = opendir("/sys/class/infiniband");
	size_t len = 0;
	struct dirent *e;

	s->rxe_module = access("/sys/module/rdma_rxe", F_OK) == 0;
	while (dir && (e = readdir(dir)) && len < sizeof(s->sys_devices))
		if (e->d_name[0] != '.')
			len += (size_t)snprintf(s->sys_devices + len,
						sizeof(s->sys_devices) - len,
						"%s%s", len ? " " : "",
						e->d_name);
	if (dir)
		closedir(dir);
}

/* UCX's settings that hang a job, or that soft-RoCE needs. */
static void gather_ucx_settings(struct info_system *s)
{
	static const char *const retries[] = {
		"UCX_RC_RETRY_COUNT", "UCX_RC_VERBS_RETRY_COUNT",
		"UCX_RC_MLX5_RETRY_COUNT", "UCX_UD_RETRY_COUNT"};
	const char *value = getenv("UCX_UD_VERBS_ETH_DGID_CHECK");

	for (size_t i = 0; i < sizeof(retries) / sizeof(retries[0]); i++) {
		const char *v = getenv(retries[i]);

		if (v && atoi(v) >= 7)
			snprintf(s->ucx_retry, sizeof(s->ucx_retry), "%s=%s",
				 retries[i], v);
	}
	s->ucx_tls_set = getenv("UCX_TLS");
	s->ucx_dgid_check_off = value && (value[0] == 'n' || value[0] == '0');
}

void gather_system(struct info_system *s)
{
	struct utsname name;

	snprintf(s->verbena, sizeof(s->verbena), "%d.%d", VBN_VERSION_MAJOR,
		 VBN_VERSION_MINOR);
	if (!uname(&name)) {
		snprintf(s->kernel, sizeof(s->kernel), "%s %s", name.sysname,
			 name.release);
		if (sscanf(name.release, "%d.%d", &s->kernel_major,
			   &s->kernel_minor) != 2)
			s->kernel_major = s->kernel_minor = 0;
	}
	/* The copy inside of the library is made from the same package. */
	snprintf(s->jemalloc, sizeof(s->jemalloc), "%s", JEMALLOC_VERSION);
	s->jemalloc[strcspn(s->jemalloc, "-")] = '\0';
	s->container = in_container();
	gather_cpu(s);
	gather_vm_write(s);
	gather_kernel_devices(s);
	gather_ucx_settings(s);
}

/* The real file name of the library that @symbol comes from tells. */
static void library_version(const char *symbol, char *out, size_t room)
{
	void *p = dlsym(RTLD_DEFAULT, symbol);
	char path[PATH_MAX];
	const char *base;
	Dl_info where;

	if (!p || !dladdr(p, &where) || !realpath(where.dli_fname, path))
		return;
	base = strrchr(path, '/');
	snprintf(out, room, "%s", base ? base + 1 : path);
}

void gather_versions(struct info_system *s)
{
	const char *(*ucx_version)(void) = NULL;
	void *ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);

	library_version("ibv_get_device_list", s->verbs, sizeof(s->verbs));
	if (!ucp)
		return;
	/* As POSIX says to: a pointer to data is no pointer to a function. */
	*(void **)&ucx_version = dlsym(ucp, "ucp_get_version_string");
	if (ucx_version)
		snprintf(s->ucx, sizeof(s->ucx), "%s", ucx_version());
	dlclose(ucp);
}
