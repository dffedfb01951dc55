# SPDX-License-Identifier: BSD-3-Clause
#
# verbena_jemalloc: a private copy of jemalloc for the memory pools, made from
# the distribution's libjemalloc_pic.a so that
# - every symbol is renamed (prefix vbn_je_): malloc stays the C library's;
# - what reaches outside (environment, threads, fork and exit handlers, sbrk)
#   is bound to transport/jemalloc.c, which says no: two copies of jemalloc in
#   one process never meet, and no constructor runs at load;
# - it has no thread-local storage. 2.6 KB of initial-exec TLS would make
#   dlopen() of libverbena fail; jemalloc_tls.c turns each access into one
#   through a variable that transport/jemalloc.c points at a plain structure.

find_library(JEMALLOC_PIC libjemalloc_pic.a)
if(NOT JEMALLOC_PIC)
	message(FATAL_ERROR
		"libjemalloc_pic.a not found: install libjemalloc-dev")
endif()
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
	message(FATAL_ERROR "verbena needs x86-64 "
		"(cmake/jemalloc_tls.c rewrites its relocations)")
endif()

add_executable(verbena_jemalloc_tls ${CMAKE_CURRENT_LIST_DIR}/jemalloc_tls.c)
set_target_properties(verbena_jemalloc_tls PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/jemalloc)

set(jemalloc_object ${CMAKE_BINARY_DIR}/jemalloc/vbn_jemalloc.o)
add_custom_command(OUTPUT ${jemalloc_object}
	COMMAND ${CMAKE_COMMAND}
		-DARCHIVE=${JEMALLOC_PIC} -DOBJECT=${jemalloc_object}
		-DTLS_TOOL=$<TARGET_FILE:verbena_jemalloc_tls>
		-DAR=${CMAKE_AR} -DLD=${CMAKE_LINKER} -DNM=${CMAKE_NM}
		-DOBJCOPY=${CMAKE_OBJCOPY}
		-P ${CMAKE_CURRENT_LIST_DIR}/jemalloc_object.cmake
	DEPENDS ${JEMALLOC_PIC} verbena_jemalloc_tls
		${CMAKE_CURRENT_LIST_DIR}/jemalloc_object.cmake
	COMMENT "Making a private jemalloc from ${JEMALLOC_PIC}"
	VERBATIM)
set_source_files_properties(${jemalloc_object} PROPERTIES
	EXTERNAL_OBJECT ON GENERATED ON)

add_library(verbena_jemalloc STATIC
	${jemalloc_object} ${PROJECT_SOURCE_DIR}/transport/jemalloc.c)
target_link_libraries(verbena_jemalloc
	PRIVATE verbena_flags PUBLIC Threads::Threads m)
