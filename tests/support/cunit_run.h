/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Runs CUnit suites: what unit tests have in common.
 */
#ifndef VBN_TESTS_CUNIT_RUN_H
#define VBN_TESTS_CUNIT_RUN_H

#include <CUnit/Basic.h>

#include <stdbool.h>

/*
 * An exit status: 0 if at least one test ran and no assertion failed, else 1.
 * Not the number of failures, of which 256 would exit as 0.
 */
static inline int run_suites(CU_SuiteInfo *suites)
{
	bool passed;

	if (CU_initialize_registry() != CUE_SUCCESS ||
	    CU_register_suites(suites) != CUE_SUCCESS)
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	passed = CU_get_number_of_tests_run() > 0 &&
		 CU_get_number_of_failures() == 0;
	CU_cleanup_registry();
	return passed ? 0 : 1;
}

#endif
