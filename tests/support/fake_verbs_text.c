/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake verbs device: names of states and events. */
#include "fake_verbs_impl.h"

const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const names[] = {
		[IBV_PORT_NOP] = "no state change (NOP)",
		[IBV_PORT_DOWN] = "down",
		[IBV_PORT_INIT] = "init",
		[IBV_PORT_ARMED] = "armed",
		[IBV_PORT_ACTIVE] = "active",
		[IBV_PORT_ACTIVE_DEFER] = "active defer",
	};

	return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state]
								: "unknown";
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return "success";
	case IBV_WC_LOC_LEN_ERR:
		return "local length error";
	case IBV_WC_LOC_QP_OP_ERR:
		return "local QP operation error";
	case IBV_WC_LOC_PROT_ERR:
		return "local protection error";
	case IBV_WC_WR_FLUSH_ERR:
		return "Work Request Flushed Error";
	case IBV_WC_REM_INV_REQ_ERR:
		return "remote invalid request error";
	case IBV_WC_REM_ACCESS_ERR:
		return "remote access error";
	case IBV_WC_REM_OP_ERR:
		return "remote operation error";
	case IBV_WC_RETRY_EXC_ERR:
		return "transport retry counter exceeded";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "RNR retry counter exceeded";
	case IBV_WC_FATAL_ERR:
		return "fatal error";
	case IBV_WC_GENERAL_ERR:
		return "general error";
	default:
		return "unknown";
	}
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
	static const char *const names[] = {
		[IBV_EVENT_CQ_ERR] = "CQ error",
		[IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
		[IBV_EVENT_QP_REQ_ERR] =
			"invalid request local work queue error",
		[IBV_EVENT_QP_ACCESS_ERR] =
			"local access violation work queue error",
		[IBV_EVENT_COMM_EST] = "communication established",
		[IBV_EVENT_SQ_DRAINED] = "send queue drained",
		[IBV_EVENT_PATH_MIG] = "path migrated",
		[IBV_EVENT_PATH_MIG_ERR] = "path migration request error",
		[IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
		[IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error",
		[IBV_EVENT_LID_CHANGE] = "LID change",
		[IBV_EVENT_PKEY_CHANGE] = "P_Key change",
		[IBV_EVENT_SM_CHANGE] = "SM change",
		[IBV_EVENT_SRQ_ERR] = "SRQ catastrophic error",
		[IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
		[IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
		[IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
		[IBV_EVENT_GID_CHANGE] = "GID table change",
	};

	return (size_t)type < sizeof(names) / sizeof(names[0]) && names[type]
		       ? names[type]
		       : "unknown";
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
	return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
}
