/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake verbs device: protection domains and registrations. */
#include "fake_verbs_impl.h"

#include <errno.h>
#include <string.h>

static bool broken(struct ibv_context *context)
{
	return fake_device_of(context)->broken;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fake_pd *pd = NULL;
	int err;

	fake_lock();
	err = broken(context) ? EIO : fake_fault(FAKE_ALLOC_PD);
	if (!err) {
		pd = fake_alloc(sizeof(*pd));
		pd->ibv.context = context;
		fake_context_of(context)->objects++;
		fake.counts.pds++;
	}
	fake_unlock();
	errno = err;
	return err ? NULL : &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct fake_pd *pd = (struct fake_pd *)ibv;
	int err = 0;

	fake_lock();
	if (pd->objects) {
		fake_violation("a protection domain is freed with %u objects",
			       pd->objects);
		err = EBUSY;
	} else {
		fake_context_of(ibv->context)->objects--;
		fake.counts.pds--;
		fake_free(pd);
	}
	fake_unlock();
	return err;
}

/* ---- registrations ---- */

struct fake_mr *fake_mr_find(uint32_t key)
{
	uint32_t i = (key & ~FAKE_LKEY) >> 8;

	return i < fake.by_key_room ? fake.by_key[i] : NULL;
}

/* Twice the room, at least @index + 1; what is there stays. */
static void *grown(void *table, uint32_t *room, uint32_t index, size_t item)
{
	uint32_t wanted = *room ? *room : 64;
	void *bigger;

	if (index < *room)
		return table;
	while (wanted <= index)
		wanted *= 2;
	bigger = fake_alloc(wanted * item);
	if (*room)
		memcpy(bigger, table, *room * item);
	fake_free(table);
	*room = wanted;
	return bigger;
}

/* Keys are not used again soon, so that a stale one is noticed. */
static void give_key(struct fake_mr *mr)
{
	uint32_t i = fake.next_key;

	while (i < fake.by_key_room && fake.by_key[i])
		i++;
	fake.by_key = grown(fake.by_key, &fake.by_key_room, i,
			    sizeof(struct fake_mr *));
	fake.by_key[i] = mr;
	fake.next_key = i + 1 < 1u << 16 ? i + 1 : 1;
	mr->ibv.rkey = i << 8 | 0x5a;
	mr->ibv.lkey = mr->ibv.rkey | FAKE_LKEY;
}

static int check_registration(struct ibv_pd *pd, size_t length, unsigned access)
{
	const struct fake_device_state *device = fake_device_of(pd->context);
	unsigned writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (device->broken)
		return EIO;
	if (!length || length > device->config.attr.max_mr_size)
		return EINVAL;
	if ((access & writes) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (device->mrs >= (unsigned)device->config.attr.max_mr)
		return ENOMEM;
	return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned access)
{
	struct fake_mr *mr = NULL;
	int err;

	fake_lock();
	err = iova != (uintptr_t)addr ? EINVAL
				      : check_registration(pd, length, access);
	if (!err)
		err = fake_fault(FAKE_REG_MR);
	if (!err) {
		mr = fake_alloc(sizeof(*mr));
		mr->ibv.context = pd->context;
		mr->ibv.pd = pd;
		mr->ibv.addr = addr;
		mr->ibv.length = length;
		mr->access = access;
		give_key(mr);
		((struct fake_pd *)pd)->objects++;
		fake_device_of(pd->context)->mrs++;
		fake.counts.mrs++;
		fake.counts.registered += length;
	}
	fake_unlock();
	errno = err;
	return err ? NULL : &mr->ibv;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr,
				(unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct fake_mr *mr = (struct fake_mr *)ibv;

	fake_lock();
	for (struct fake_qp *qp = fake.qps; qp && fake.late; qp = qp->next_qp)
		fake_late_show(qp);
	fake.by_key[ibv->rkey >> 8] = NULL;
	((struct fake_pd *)ibv->pd)->objects--;
	fake_device_of(ibv->context)->mrs--;
	fake.counts.mrs--;
	fake.counts.registered -= ibv->length;
	fake_free(mr);
	fake_unlock();
	return 0;
}
