/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is sent. A connection's queue holds operations, notifies and messages
 * in the order posted; the pump posts its head, fragment by fragment, as long
 * as the window has room. Since the target takes active messages in order, a
 * notify or message comes after the data of the puts before it without more
 * ado, and answers come in the order of the requests.
 */
#include "ucx.h"

#include "error.h"

#include <errno.h>
#include <string.h>

/* Credits bound messages; they may go beyond the operations' limit. */
#define FLIGHTS_MAX (UCX_FLIGHTS + 4 * UCX_CREDITS)

/* ---- to UCX ---- */

static void sent(void *request, ucs_status_t status, void *user_data)
{
	struct flight *f = user_data;
	struct ucx_conn *conn = f->conn;

	ucp_request_free(request);
	f->sends--;
	if (conn == &ucx_closed)
		return; /* an orphan */
	if (f->kind == AM_PUT)
		conn->window--;
	if (status != UCS_OK) {
		f->raw = status;
		ucx_conn_failed(conn, status);
	}
	ucx_flight_check(f);
	ucx_pump(conn);
}

static size_t header_len(uint32_t kind)
{
	switch (kind) {
	case AM_MESSAGE:
		return offsetof(struct am_header, message) +
		       sizeof(struct message_header);
	case AM_PUT:
	case AM_GET:
	case AM_FETCH_ADD:
	case AM_COMPARE_SWAP:
	case AM_VALUE:
		return sizeof(struct am_header);
	default:
		return offsetof(struct am_header, request);
	}
}

/*
 * UCX may read the header until the message is sent. Fragments of one flight
 * differ in theirs, so a put has one fragment at a time in UCX's hands unless
 * it was sent at once.
 */
static void give(struct flight *f, const void *bytes, size_t len)
{
	struct ucx_conn *conn = f->conn;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = sent,
		.user_data = f,
	};
	ucs_status_ptr_t request;

	f->header.conn = conn->peer_id;
	f->header.seq = conn->tx_seq++;
	f->sends++;
	request = ucp_am_send_nbx(conn->ucp_ep, UCX_AM_ID, &f->header,
				  header_len(f->header.kind), bytes, len,
				  &param);
	if (UCS_PTR_IS_PTR(request))
		return;
	f->sends--;
	if (f->kind == AM_PUT)
		conn->window--;
	if (UCS_PTR_STATUS(request) != UCS_OK) {
		f->raw = UCS_PTR_STATUS(request);
		ucx_conn_failed(conn, f->raw);
	}
}
