/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job's life: options, control plane, providers. A provider that is not
 * usable stays out with its reason, which is told when nothing can reach a
 * peer.
 */
#include "core.h"
#include "module.h"
#include "options.h"
#include "wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UCX_MODULE "libverbena-ucx.so"

int vbn_job_rank(const struct vbn_job *job)
{
	return job->rank;
}

int vbn_job_size(const struct vbn_job *job)
{
	return job->nranks;
}

int vbn_job_timeout_ms(const struct vbn_job *job)
{
	return job->timeout_ms;
}

/* The library's own keys begin with INTERNAL_KEY; others may not. */
static int check_key(const char *key)
{
	if (key && *key && *key != INTERNAL_KEY[0] &&
	    strlen(key) <= CONTROL_KEY_MAX)
		return 0;
	return vbn_fail(-EINVAL,
			"a key has 1 to %d bytes and begins with a printable "
			"one",
			CONTROL_KEY_MAX);
}

int vbn_job_set(struct vbn_job *job, const char *key, const void *value,
		size_t len, int timeout_ms)
{
	int err = check_key(key);

	return err ? err
		   : control_set(job->control, key, value, len, timeout_ms);
}

int vbn_job_get(struct vbn_job *job, const char *key, void *value, size_t *len,
		int timeout_ms)
{
	int err = check_key(key);

	return err ? err
		   : control_get(job->control, key, value, len, timeout_ms);
}

int vbn_job_fence(struct vbn_job *job, int timeout_ms)
{
	return control_fence(job->control, timeout_ms);
}

int vbn_job_dead(const struct vbn_job *job)
{
	return control_first_dead(job->control);
}

bool vbn_job_rank_dead(const struct vbn_job *job, int rank)
{
	return control_rank_dead(job->control, rank);
}

struct control *vbn_job_control(struct vbn_job *job)
{
	return job->control;
}

void job_hold(struct vbn_job *job)
{
	atomic_fetch_add(&job->open_objects, 1);
}

void job_release(struct vbn_job *job)
{
	atomic_fetch_sub(&job->open_objects, 1);
}

static int provider_index(const char *name)
{
	static const char *const names[PROVIDERS] = {
		[PROVIDER_SHM] = "shm",
		[PROVIDER_VERBS] = "verbs",
		[PROVIDER_UCX] = "ucx",
	};

	for (int i = 0; i < PROVIDERS; i++)
		if (!strcmp(name, names[i]))
			return i;
	return -1;
}

/*
 * Two ranks share a host when they share its boot, its network namespace (the
 * abstract socket that hands out memory lives there), its process namespace
 * and its user.
 */
static uint64_t make_host_id(void)
{
	char text[160] = "";
	struct stat st = {0}, pid = {0};
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	size_t n;

	if (fd >= 0) {
		if (read(fd, text, 36) < 0)
			text[0] = '\0';
		close(fd);
	}
	if (stat("/proc/self/ns/net", &st) < 0)
		st.st_ino = 0;
	/* Heap memory is reached by process number. */
	if (stat("/proc/self/ns/pid", &pid) < 0)
		pid.st_ino = 0;
	n = strlen(text);
	gethostname(text + n, 64);
	n = strlen(text);
	snprintf(text + n, sizeof(text) - n, "/%lu/%lu/%u",
		 (unsigned long)st.st_ino, (unsigned long)pid.st_ino,
		 (unsigned)geteuid());
	for (const char *p = text; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
	return hash;
}

/*
 * UCX installs signal handlers and memory hooks when it is loaded, unless
 * told not to before. The environment is left as it was found otherwise.
 */
static const struct provider *load_ucx(char *why, size_t why_len)
{
	setenv("UCX_HANDLE_ERRORS", "none", 0);
	setenv("UCX_DEBUG_SIGNO", "0", 0);
	setenv("UCX_MEM_EVENTS", "no", 0);
	/* It would write to standard output what vbn_error() says anyway. */
	setenv("UCX_LOG_LEVEL", "fatal", 0);
	return module_load(UCX_MODULE, PROVIDER_UCX_SYMBOL, why, why_len);
}

static int open_wrapped(struct vbn_job *job, struct job_provider *p)
{
	int err = p->ops->job_open(job, &p->pjob, &p->caps);

	if (err)
		return err;
	if (job->fault.on)
		err = fault_wrap(p, job);
	if (!err && job->checksum)
		err = checksum_wrap(p, job);
	if (err)
		p->ops->job_close(p->pjob);
	return err;
}

static void open_provider(struct vbn_job *job, int id)
{
	struct job_provider *p = &job->providers[id];
	int err;

	if (job->forced >= 0 && job->forced != id) {
		snprintf(p->why, sizeof(p->why), "another one is forced");
		return;
	}
	switch (id) {
	case PROVIDER_SHM:
		p->ops = &provider_shm;
		break;
	case PROVIDER_VERBS:
		p->ops = &provider_verbs;
		break;
	default:
		p->ops = load_ucx(p->why, sizeof(p->why));
	}
	if (!p->ops)
		return;
	err = open_wrapped(job, p);
	if (err) {
		snprintf(p->why, sizeof(p->why), "%s", vbn_error());
		p->pjob = NULL;
		vbn_log(VBN_INFO, "provider %s: %s", p->ops->name, p->why);
	}
}

static int open_providers(struct vbn_job *job)
{
	if (job->fault.on && job->rank == 0)
		vbn_log(VBN_WARN, "faults are injected, as VBN_FAULT says: %s",
			getenv("VBN_FAULT"));
	open_provider(job, PROVIDER_SHM);
	open_provider(job, PROVIDER_VERBS);
	open_provider(job, PROVIDER_UCX);
	for (int i = 0; i < PROVIDERS; i++)
		if (job->providers[i].pjob)
			return 0;
	if (job->forced >= 0)
		return vbn_fail(-ENODEV, "provider %s cannot be used: %s",
				job->providers[job->forced].ops
					? job->providers[job->forced].ops->name
					: "ucx",
				job->providers[job->forced].why);
	return vbn_fail(-ENODEV,
			"no provider can be used: shm: %s; verbs: %s; ucx: %s",
			job->providers[PROVIDER_SHM].why,
			job->providers[PROVIDER_VERBS].why,
			job->providers[PROVIDER_UCX].why);
}

static void close_providers(struct vbn_job *job)
{
	for (int i = 0; i < PROVIDERS; i++)
		if (job->providers[i].pjob)
			job->providers[i].ops->job_close(
				job->providers[i].pjob);
}

static void on_gone(void *arg, int rank, bool died, const char *why)
{
	struct vbn_job *job = arg;

	if (died && rank == job->rank)
		vbn_log(VBN_WARN,
			"rank %d: the job has named this rank dead (%s)",
			job->rank, why);
	else if (died && !control_rank_dead(job->control, job->rank))
		vbn_log(VBN_WARN, "rank %d: rank %d has died%s%s%s", job->rank,
			rank, why[0] ? " (" : "", why, why[0] ? ")" : "");
	connect_gone(job, rank);
	atomic_fetch_add(&job->deaths, 1);
	ctx_alert_all(job);
}

static void job_free(struct vbn_job *job)
{
	if (job->map)
		memmap_destroy(job->map);
	free(job->generations);
	pthread_mutex_destroy(&job->staging_lock);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

static struct vbn_job *job_new(const struct job_config *config)
{
	struct vbn_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	pthread_mutex_init(&job->lock, NULL);
	pthread_mutex_init(&job->staging_lock, NULL);
	job->rank = config->rank;
	job->nranks = config->nranks;
	job->timeout_ms = config->timeout_ms;
	job->forced =
		config->provider[0] ? provider_index(config->provider) : -1;
	job->checksum = config->checksum;
	job->fault = config->fault;
	job->host_id = make_host_id();
	job->generations = calloc(REGION_MAX, sizeof(*job->generations));
	if (!job->generations || memmap_create(&job->map)) {
		job_free(job);
		return NULL;
	}
	return job;
}

int vbn_job_open(struct vbn_job **out, const struct vbn_job_options *opts)
{
	struct control_options control;
	struct job_config config;
	struct vbn_job *job;
	int err;

	err = job_options_resolve(opts, &config);
	if (err)
		return err;
	job = job_new(&config);
	if (!job) {
		job_config_abandon(&config);
		return vbn_fail(-ENOMEM, "no memory for a job");
	}
	control = (struct control_options){
		.rank = config.rank,
		.nranks = config.nranks,
		.host = config.host,
		.port = config.port,
		.ifname = config.ifname,
		.launch = config.launch,
		.secret = config.secret,
		.listen_fd = config.listen_fd,
		.timeout_ms = config.timeout_ms,
		.dead_ms = config.dead_ms,
		.events = {.message = connect_message,
			   .gone = on_gone,
			   .arg = job},
	};
	err = control_open(&job->control, &control);
	job_config_wipe(&config);
	if (err)
		goto free_job;
	err = open_providers(job);
	if (err)
		goto close_control;
	err = hosts_publish(job);
	if (err)
		goto close_providers;
	*out = job;
	return 0;

close_providers:
	close_providers(job);
close_control:
	control_close(job->control);
	connect_free_all(job);
free_job:
	job_free(job);
	return err;
}

int vbn_job_close(struct vbn_job *job)
{
	int held = job->staging ? 1 : 0;
	int open = atomic_load(&job->open_objects) - held;

	if (open > 0)
		return vbn_fail(-EBUSY,
				"%d contexts, pools or registrations are open:"
				" close them before the job",
				open);
	if (job->staging)
		vbn_pool_destroy(job->staging);
	control_close(job->control);
	connect_free_all(job);
	region_free_all(job);
	close_providers(job);
	job_free(job);
	return 0;
}
