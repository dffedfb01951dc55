# SPDX-License-Identifier: BSD-3-Clause
#
# What users of an installed verbena find it by (CMake; for pkg-config see
# transport/CMakeLists.txt), and the Debian package: cpack -G DEB.

include(CMakePackageConfigHelpers)
set(dir ${CMAKE_INSTALL_LIBDIR}/cmake/verbena)
install(EXPORT verbena-targets NAMESPACE verbena:: DESTINATION ${dir})
configure_package_config_file(
	${PROJECT_SOURCE_DIR}/cmake/verbena-config.cmake.in
	${CMAKE_BINARY_DIR}/verbena-config.cmake INSTALL_DESTINATION ${dir})
# Until 1.0 a minor version may change what programs see.
write_basic_package_version_file(
	${CMAKE_BINARY_DIR}/verbena-config-version.cmake
	COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/verbena-config.cmake
	${CMAKE_BINARY_DIR}/verbena-config-version.cmake DESTINATION ${dir})
install(FILES ${PROJECT_SOURCE_DIR}/cmake/copyright
	DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/verbena)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME verbena)
set(CPACK_PACKAGE_VENDOR "The Verbena authors")
set(CPACK_PACKAGE_CONTACT "The Verbena authors <verbena@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
	"RDMA transport and collectives for distributed training")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
	"Registered memory, one-sided operations and collectives between the
ranks of a job, over verbs (InfiniBand, RoCE), UCX and shared memory:
the library with its headers, the launcher verbena-run, and programs
that measure, simulate, train and diagnose.")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
# What the programs and modules are linked with; the libraries of verbs'
# devices, a remote shell and diagrams are found when they are wanted.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ibverbs-providers")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openssh-client, gnuplot-nox")
# Not CPack's own, which wants modules to have versions, too.
set(shlibs ${CMAKE_BINARY_DIR}/debian/shlibs)
file(WRITE ${shlibs} "libverbena ${PROJECT_VERSION_MAJOR} verbena \
(>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${shlibs})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
