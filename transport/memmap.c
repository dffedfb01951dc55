/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The map from an address to its registration.
 *
 * The 48-bit address space is cut into chunks of 2 MiB; two levels of tables
 * lead to a slot per chunk. A slot is empty, or one entry (the registration
 * that alone touches the chunk), or, tagged, a list of entries, oldest first.
 * A registration is in the slot of every chunk that it touches, so the chunk
 * of a range's first byte is enough to find who holds the range.
 *
 * Memory ordering. Writers hold the lock. What a slot, a list's item, a
 * list's count or a table pointer leads to is complete before it is stored
 * with release; readers load with acquire. Removal clears the slots, then
 * advances the epoch, then queues what it removed under the new epoch. A
 * reader's quiescent call stores the epoch that it loaded (acquire), so once
 * every reader's is at or past the item's, each of them loads cleared slots
 * only; and as it is stored with release and read with acquire, all that the
 * reader did with the item before happens before the item is freed. Readers
 * need no fence: one that has not spoken yet only delays.
 *
 * Tables stay until the map is destroyed. A removal allocates nothing.
 */
#include "memory.h"

#include "error.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define ADDRESS_BITS 48
#define CHUNK_BITS   21
#define TABLE_BITS   13
#define TOP_BITS     (ADDRESS_BITS - CHUNK_BITS - TABLE_BITS)
#define LIST	     ((uintptr_t)1)

/* Something removed that readers may still see. */
struct retired {
	struct retired *next;
	uint64_t epoch;
	void (*release)(struct retired *item);
};

struct entry {
	struct retired retired; /* first */
	uintptr_t base;
	size_t len;
	struct vbn_mem *mem;
	void (*free_mem)(struct vbn_mem *mem);
};

/* Items may be NULL (removed). Readers go from the last to the first. */
struct list {
	struct retired retired; /* first */
	size_t room;
	_Atomic size_t count;
	_Atomic(struct entry *) items[];
};

struct table {
	_Atomic uintptr_t slots[1 << TABLE_BITS];
};

struct memmap {
	_Atomic(struct table *) tables[1 << TOP_BITS];
	_Atomic uint64_t epoch;
	pthread_mutex_t lock;
	struct memmap_reader *readers;
	struct retired *retired, **retired_tail; /* epochs ascend */
};

/* ---- what both sides use ---- */

static bool holds(const struct entry *e, uintptr_t addr, size_t len)
{
	size_t offset = addr - e->base;

	return offset < e->len && len <= e->len - offset;
}

static const struct entry *find_in_list(struct list *list, uintptr_t addr,
					size_t len)
{
	size_t i = atomic_load_explicit(&list->count, memory_order_acquire);

	while (i-- > 0) {
		const struct entry *e = atomic_load_explicit(
			&list->items[i], memory_order_acquire);

		if (e && holds(e, addr, len))
			return e;
	}
	return NULL;
}

static const struct entry *find(struct memmap *map, uintptr_t addr, size_t len)
{
	size_t chunk = addr >> CHUNK_BITS;
	const struct entry *e;
	struct table *table;
	uintptr_t slot;

	if (addr >> ADDRESS_BITS)
		return NULL;
	table = atomic_load_explicit(&map->tables[chunk >> TABLE_BITS],
				     memory_order_acquire);
	if (!table)
		return NULL;
	slot = atomic_load_explicit(
		&table->slots[chunk & ((1 << TABLE_BITS) - 1)],
		memory_order_acquire);
	if (slot & LIST)
		return find_in_list((struct list *)(slot - LIST), addr, len);
	e = (const struct entry *)slot;
	return e && holds(e, addr, len) ? e : NULL;
}

/* ---- reclamation ---- */

/* [lock] What no reader can see any more, to be released without the lock. */
static struct retired *reclaim(struct memmap *map)
{
	struct retired *first = map->retired, **p = &first;
	uint64_t seen = UINT64_MAX;

	for (struct memmap_reader *r = map->readers; r; r = r->next) {
		uint64_t epoch =
			atomic_load_explicit(&r->epoch, memory_order_acquire);

		if (epoch < seen)
			seen = epoch;
	}
	while (*p && (*p)->epoch <= seen)
		p = &(*p)->next;
	map->retired = *p;
	if (!map->retired)
		map->retired_tail = &map->retired;
	*p = NULL;
	return first;
}

static void release(struct retired *item)
{
	while (item) {
		struct retired *next = item->next;

		item->release(item);
		item = next;
	}
}

/* [lock] @item is in no slot any more. */
static void retire(struct memmap *map, struct retired *item,
		   void (*fn)(struct retired *item))
{
	item->release = fn;
	item->next = NULL;
	item->epoch = 1 + atomic_fetch_add_explicit(&map->epoch, 1,
						    memory_order_acq_rel);
	*map->retired_tail = item;
	map->retired_tail = &item->next;
}

static void release_list(struct retired *item)
{
	free(item);
}

static void release_entry(struct retired *item)
{
	struct entry *e = (struct entry *)item;

	if (e->free_mem)
		e->free_mem(e->mem);
	free(e);
}

/* ---- slots: the lock is held ---- */

static void slot_store(_Atomic uintptr_t *slot, const void *p, uintptr_t tag)
{
	atomic_store_explicit(slot, (uintptr_t)p + tag, memory_order_release);
}

static _Atomic uintptr_t *slot_of(struct memmap *map, size_t chunk, bool make)
{
	_Atomic(struct table *) *place = &map->tables[chunk >> TABLE_BITS];
	struct table *table = atomic_load_explicit(place, memory_order_relaxed);

	if (!table) {
		table = make ? calloc(1, sizeof(*table)) : NULL;
		if (!table)
			return NULL;
		atomic_store_explicit(place, table, memory_order_release);
	}
	return &table->slots[chunk & ((1 << TABLE_BITS) - 1)];
}

static struct entry *item(struct list *list, size_t i)
{
	return atomic_load_explicit(&list->items[i], memory_order_relaxed);
}

static void append(struct list *list, struct entry *e)
{
	size_t n = atomic_load_explicit(&list->count, memory_order_relaxed);

	atomic_store_explicit(&list->items[n], e, memory_order_release);
	atomic_store_explicit(&list->count, n + 1, memory_order_release);
}

static struct list *list_create(size_t room)
{
	struct list *list =
		calloc(1, sizeof(*list) + room * sizeof(list->items[0]));

	if (list)
		list->room = room;
	return list;
}

/* A full list is replaced by one with room and without the gaps. */
static struct list *list_renew(const struct list *old_const)
{
	struct list *old = (struct list *)old_const, *list;
	size_t live = 0;

	for (size_t i = 0; i < old->room; i++)
		live += item(old, i) != NULL;
	list = list_create(live < old->room / 2 ? old->room : 2 * old->room);
	for (size_t i = 0; list && i < old->room; i++)
		if (item(old, i))
			append(list, item(old, i));
	return list;
}

static int slot_add(struct memmap *map, _Atomic uintptr_t *slot,
		    struct entry *e)
{
	uintptr_t value = atomic_load_explicit(slot, memory_order_relaxed);
	struct list *list, *old = NULL;

	if (!value) {
		slot_store(slot, e, 0);
		return 0;
	}
	if (!(value & LIST)) {
		list = list_create(4);
		if (!list)
			return -ENOMEM;
		append(list, (struct entry *)value);
		append(list, e);
		slot_store(slot, list, LIST);
		return 0;
	}
	list = (struct list *)(value - LIST);
	if (atomic_load_explicit(&list->count, memory_order_relaxed) ==
	    list->room) {
		old = list;
		list = list_renew(old);
		if (!list)
			return -ENOMEM;
	}
	append(list, e);
	if (old) {
		slot_store(slot, list, LIST);
		retire(map, &old->retired, release_list);
	}
	return 0;
}

static void slot_remove(struct memmap *map, _Atomic uintptr_t *slot,
			struct entry *e)
{
	uintptr_t value = atomic_load_explicit(slot, memory_order_relaxed);
	struct list *list;
	size_t n;

	if (!(value & LIST)) {
		if (value == (uintptr_t)e)
			slot_store(slot, NULL, 0);
		return;
	}
	list = (struct list *)(value - LIST);
	n = atomic_load_explicit(&list->count, memory_order_relaxed);
	for (size_t i = n; i-- > 0;)
		if (item(list, i) == e)
			atomic_store_explicit(&list->items[i], NULL,
					      memory_order_release);
	while (n > 0 && !item(list, n - 1))
		n--;
	atomic_store_explicit(&list->count, n, memory_order_release);
	if (n == 0) {
		slot_store(slot, NULL, 0);
		retire(map, &list->retired, release_list);
	}
}

static void remove_chunks(struct memmap *map, struct entry *e, size_t end)
{
	for (size_t c = e->base >> CHUNK_BITS; c < end; c++)
		slot_remove(map, slot_of(map, c, false), e);
}

static size_t end_chunk(const struct entry *e)
{
	return ((e->base + e->len - 1) >> CHUNK_BITS) + 1;
}

/* The entry of @mem, or NULL. */
static struct entry *entry_of(struct memmap *map, const struct vbn_mem *mem)
{
	size_t chunk = (uintptr_t)mem->addr >> CHUNK_BITS;
	_Atomic uintptr_t *slot = slot_of(map, chunk, false);
	uintptr_t value =
		slot ? atomic_load_explicit(slot, memory_order_relaxed) : 0;
	struct entry *e = NULL;
	struct list *list;

	if (value && !(value & LIST))
		e = (struct entry *)value;
	if (!(value & LIST))
		return e && e->mem == mem ? e : NULL;
	list = (struct list *)(value - LIST);
	for (size_t i = 0; i < list->room; i++) {
		e = item(list, i);
		if (e && e->mem == mem)
			return e;
	}
	return NULL;
}

/* ---- entry points ---- */

int memmap_create(struct memmap **out)
{
	struct memmap *map = calloc(1, sizeof(*map));

	if (!map)
		return vbn_fail(-ENOMEM, "no memory for the memory map");
	atomic_init(&map->epoch, 1);
	pthread_mutex_init(&map->lock, NULL);
	map->retired_tail = &map->retired;
	*out = map;
	return 0;
}

static void free_table(struct table *table)
{
	for (size_t i = 0; i < 1 << TABLE_BITS; i++) {
		uintptr_t value = atomic_load_explicit(&table->slots[i],
						       memory_order_relaxed);

		if (value & LIST)
			free((void *)(value - LIST));
	}
	free(table);
}

void memmap_destroy(struct memmap *map)
{
	if (!map)
		return;
	release(map->retired);
	for (size_t i = 0; i < 1 << TOP_BITS; i++) {
		struct table *table = atomic_load_explicit(
			&map->tables[i], memory_order_relaxed);

		if (table)
			free_table(table);
	}
	pthread_mutex_destroy(&map->lock);
	free(map);
}

int memmap_insert(struct memmap *map, struct vbn_mem *mem)
{
	uintptr_t base = (uintptr_t)mem->addr;
	struct retired *gone;
	struct entry *e;
	int err = 0;

	if (!mem->len || base >> ADDRESS_BITS ||
	    mem->len > ((uintptr_t)1 << ADDRESS_BITS) - base)
		return vbn_fail(-EINVAL,
				"memory at %p, %zu bytes: outside of the "
				"48-bit address space",
				mem->addr, mem->len);
	e = calloc(1, sizeof(*e));
	if (!e)
		return vbn_fail(-ENOMEM, "no memory for the memory map");
	e->base = base;
	e->len = mem->len;
	e->mem = mem;
	pthread_mutex_lock(&map->lock);
	for (size_t c = base >> CHUNK_BITS; c < end_chunk(e); c++) {
		_Atomic uintptr_t *slot = slot_of(map, c, true);

		err = slot ? slot_add(map, slot, e) : -ENOMEM;
		if (err) {
			remove_chunks(map, e, c);
			retire(map, &e->retired, release_entry);
			break;
		}
	}
	gone = reclaim(map);
	pthread_mutex_unlock(&map->lock);
	release(gone);
	return err ? vbn_fail(err, "no memory for the memory map") : 0;
}

void memmap_remove(struct memmap *map, struct vbn_mem *mem,
		   void (*free_mem)(struct vbn_mem *mem))
{
	struct retired *gone;
	struct entry *e;

	pthread_mutex_lock(&map->lock);
	e = entry_of(map, mem);
	if (e) {
		e->free_mem = free_mem;
		remove_chunks(map, e, end_chunk(e));
		retire(map, &e->retired, release_entry);
	}
	gone = reclaim(map);
	pthread_mutex_unlock(&map->lock);
	release(gone);
}

int memmap_reader_open(struct memmap *map, struct memmap_reader **out)
{
	struct memmap_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return vbn_fail(-ENOMEM, "no memory for a reader of the map");
	reader->map = map;
	reader->now = &map->epoch;
	pthread_mutex_lock(&map->lock);
	atomic_init(&reader->epoch,
		    atomic_load_explicit(&map->epoch, memory_order_relaxed));
	reader->next = map->readers;
	map->readers = reader;
	pthread_mutex_unlock(&map->lock);
	*out = reader;
	return 0;
}

void memmap_reader_close(struct memmap_reader *reader)
{
	struct memmap_reader **p;
	struct retired *gone;
	struct memmap *map;

	if (!reader)
		return;
	map = reader->map;
	pthread_mutex_lock(&map->lock);
	for (p = &map->readers; *p != reader; p = &(*p)->next)
		;
	*p = reader->next;
	gone = reclaim(map);
	pthread_mutex_unlock(&map->lock);
	release(gone);
	free(reader);
}

const struct vbn_mem *memmap_find(struct memmap_reader *reader,
				  const void *addr, size_t len)
{
	const struct entry *e = find(reader->map, (uintptr_t)addr, len);

	return e ? e->mem : NULL;
}

bool memmap_find_locked(struct memmap *map, const void *addr, size_t len,
			struct vbn_mem *copy)
{
	const struct entry *e;

	pthread_mutex_lock(&map->lock);
	e = find(map, (uintptr_t)addr, len);
	if (e)
		*copy = *e->mem;
	pthread_mutex_unlock(&map->lock);
	return e != NULL;
}
