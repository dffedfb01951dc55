/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Build tool: take the thread-local storage out of an x86-64 relocatable
 * object, in place.
 *
 *	jemalloc_tls OBJECT SYMBOL
 *
 * Initial-exec code loads the distance from the thread pointer to a TLS
 * variable out of a slot of the GOT. Here each such load is made to read an
 * ordinary 8-byte variable instead: its relocation becomes PC-relative, and
 * SYMBOL becomes an undefined reference to that variable, which the program
 * supplies. The TLS section becomes plain data (the initial image). Anything
 * else about TLS in the object is an error. All that the object defines becomes
 * hidden: no library shows it to others.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct object {
	unsigned char *base;
	size_t size;
	Elf64_Ehdr *header;
	Elf64_Shdr *sections;
};

static int fail(const char *what)
{
	fprintf(stderr, "jemalloc_tls: %s\n", what);
	return -1;
}

static int object_open(struct object *o, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDWR);

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail("cannot open the object");
	o->size = (size_t)st.st_size;
	o->base =
		mmap(NULL, o->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (o->base == MAP_FAILED)
		return fail("cannot map the object");
	o->header = (Elf64_Ehdr *)o->base;
	if (o->size < sizeof(*o->header) ||
	    memcmp(o->base, ELFMAG, SELFMAG) != 0 ||
	    o->header->e_machine != EM_X86_64 || o->header->e_type != ET_REL)
		return fail("not an x86-64 relocatable object");
	if (o->header->e_shoff +
		    (size_t)o->header->e_shnum * sizeof(Elf64_Shdr) >
	    o->size)
		return fail("truncated object");
	o->sections = (Elf64_Shdr *)(o->base + o->header->e_shoff);
	return 0;
}

/* The symbol's index becomes *index; it turns into an undefined reference. */
static int convert_symbols(struct object *o, const char *name, size_t *index)
{
	unsigned found = 0;

	for (unsigned s = 0; s < o->header->e_shnum; s++) {
		Elf64_Shdr *table = &o->sections[s];
		Elf64_Sym *symbols = (Elf64_Sym *)(o->base + table->sh_offset);
		const char *names;

		if (table->sh_type != SHT_SYMTAB)
			continue;
		names = (const char *)o->base +
			o->sections[table->sh_link].sh_offset;
		for (size_t i = 0; i < table->sh_size / sizeof(*symbols); i++) {
			Elf64_Sym *sym = &symbols[i];

			if (ELF64_ST_BIND(sym->st_info) != STB_LOCAL &&
			    sym->st_shndx != SHN_UNDEF)
				sym->st_other = STV_HIDDEN;
			if (ELF64_ST_TYPE(sym->st_info) != STT_TLS)
				continue;
			if (strcmp(names + sym->st_name, name) != 0)
				return fail("another thread-local symbol");
			sym->st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE);
			sym->st_shndx = SHN_UNDEF;
			sym->st_value = 0;
			sym->st_size = 0;
			*index = i;
			found++;
		}
	}
	return found == 1 ? 0 : fail("no such thread-local symbol");
}

static int convert_relocations(struct object *o, size_t index)
{
	size_t converted = 0;

	for (unsigned s = 0; s < o->header->e_shnum; s++) {
		Elf64_Shdr *table = &o->sections[s];
		Elf64_Rela *relocations =
			(Elf64_Rela *)(o->base + table->sh_offset);
		size_t n = table->sh_size / sizeof(*relocations);

		for (size_t i = 0; table->sh_type == SHT_RELA && i < n; i++) {
			Elf64_Rela *r = &relocations[i];

			if (ELF64_R_SYM(r->r_info) != index)
				continue;
			if (ELF64_R_TYPE(r->r_info) != R_X86_64_GOTTPOFF)
				return fail("a relocation of another TLS "
					    "model than initial-exec");
			r->r_info = ELF64_R_INFO(index, R_X86_64_PC32);
			converted++;
		}
	}
	return converted ? 0 : fail("nothing refers to the symbol");
}

static int convert_sections(struct object *o)
{
	unsigned found = 0;

	for (unsigned s = 0; s < o->header->e_shnum; s++) {
		Elf64_Shdr *section = &o->sections[s];

		if (!(section->sh_flags & SHF_TLS))
			continue;
		if (section->sh_type != SHT_PROGBITS)
			return fail("zero-initialised thread-local storage");
		section->sh_flags &= ~(Elf64_Xword)SHF_TLS;
		found++;
	}
	return found == 1 ? 0 : fail("want one thread-local section");
}

int main(int argc, char **argv)
{
	struct object o;
	size_t index = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: jemalloc_tls OBJECT SYMBOL\n");
		return EXIT_FAILURE;
	}
	if (object_open(&o, argv[1]) || convert_symbols(&o, argv[2], &index) ||
	    convert_relocations(&o, index) || convert_sections(&o) ||
	    munmap(o.base, o.size))
		return EXIT_FAILURE;
	return EXIT_SUCCESS;
}
