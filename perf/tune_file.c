/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file that tune writes. It gets its name once it is whole.
 */
#include "tune.h"
#include "perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(const struct tune_file *f, const char *what)
{
	return perf_fail(-errno, "cannot %s %s: %s", what,
			 f->path ? f->path : "standard output",
			 strerror(errno));
}

/* As any file that the user makes, not as mkstemp() leaves it. */
static int open_permissions(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	return fchmod(fd, 0666 & ~mask);
}

int tune_file_open(struct tune_file *f, const char *path)
{
	int fd;

	*f = (struct tune_file){.path = path, .file = stdout};
	if (path) {
		size_t room = sizeof(f->temporary);

		if (strlen(path) + sizeof(".XXXXXX") > room)
			return perf_fail(-ENAMETOOLONG, "--out: too long");
		snprintf(f->temporary, room, "%s.XXXXXX", path);
		fd = mkstemp(f->temporary);
		if (fd < 0)
			return failed(f, "create a file beside");
		f->file = open_permissions(fd) ? NULL : fdopen(fd, "w");
		if (!f->file) {
			int rc = failed(f, "open");

			close(fd);
			unlink(f->temporary);
			return rc;
		}
	}
	fputs("verbena-tuning 1\n"
	      "# For VBN_COLL_TUNING, the same on all ranks. The first line\n"
	      "# must stay; what follows # is not read.\n",
	      f->file);
	return 0;
}

/* ---- what it says ---- */

static void us(struct tune_file *f, const char *name, double seconds)
{
	if (seconds > 0)
		fprintf(f->file, "%s %.4g\n", name, seconds * 1e6);
}

static void rate(struct tune_file *f, const char *name, double seconds)
{
	if (seconds > 0)
		fprintf(f->file, "%s %.4g\n", name, 1e-9 / seconds);
}

void tune_file_params(struct tune_file *f, const struct tune_params *p)
{
	fputs("\n# Microseconds of a message's way and handling, 10^9 bytes per\n"
	      "# second; within a host and between hosts. What is not here was\n"
	      "# not measured and keeps its usual value.\n",
	      f->file);
	us(f, "local_alpha_us", p->local.alpha);
	us(f, "local_overhead_us", p->local.overhead);
	rate(f, "local_gb_s", p->local.beta);
	us(f, "net_alpha_us", p->net.alpha);
	us(f, "net_overhead_us", p->net.overhead);
	rate(f, "net_gb_s", p->net.beta);
	rate(f, "sum_gb_s", p->gamma);
	us(f, "call_us", p->call);
	us(f, "wake_us", p->wake);
	fprintf(f->file, "processors %d\n", p->processors);
	fputs("\n# operation members bytes algorithm chunk\n", f->file);
}

void tune_file_line(struct tune_file *f, const struct tune_line *line)
{
	fprintf(f->file, "%s %d %zu %s %zu # %.2f us\n", line->operation,
		line->n, line->bytes, vbn_algorithm_name(line->algorithm),
		line->chunk, line->seconds * 1e6);
}

void tune_file_note(struct tune_file *f, enum vbn_algorithm algorithm,
		    double seconds)
{
	if (algorithm == VBN_ALGORITHM_AUTO)
		fputs(f->notes ? "\n" : "", f->file);
	else
		fprintf(f->file, "%s %s %.2f",
			f->notes ? "," : "# us:", vbn_algorithm_name(algorithm),
			seconds * 1e6);
	f->notes = algorithm != VBN_ALGORITHM_AUTO;
}

int tune_file_close(struct tune_file *f, bool good)
{
	int rc = 0;

	if (!f->file)
		return 0;
	if (fflush(f->file) != 0 || ferror(f->file))
		rc = failed(f, "write");
	if (!f->path)
		return rc;
	if (rc == 0 && fsync(fileno(f->file)) != 0)
		rc = failed(f, "write");
	if (fclose(f->file) != 0 && rc == 0)
		rc = failed(f, "write");
	if (rc == 0 && good && rename(f->temporary, f->path) != 0)
		rc = failed(f, "write");
	if (rc != 0 || !good)
		unlink(f->temporary);
	return rc;
}
