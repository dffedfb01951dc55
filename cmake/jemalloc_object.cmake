# SPDX-License-Identifier: BSD-3-Clause
#
# Build-time script of jemalloc.cmake: ARCHIVE -> one OBJECT with renamed
# symbols and no thread-local storage.

get_filename_component(dir ${OBJECT} DIRECTORY)
set(parts ${dir}/parts)
file(REMOVE_RECURSE ${parts})
file(MAKE_DIRECTORY ${parts})

function(run)
	execute_process(COMMAND ${ARGV} WORKING_DIRECTORY ${parts}
		RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
	if(NOT status EQUAL 0)
		message(FATAL_ERROR "${ARGV}: ${status}\n${err}")
	endif()
	set(out "${out}" PARENT_SCOPE)
endfunction()

run(${AR} x ${ARCHIVE})
file(GLOB members ${parts}/*.o)
# The C++ operators would want libstdc++, and are of no use here.
list(FILTER members EXCLUDE REGEX "jemalloc_cpp")
run(${LD} -r -o ${parts}/whole ${members})
run(${TLS_TOOL} ${parts}/whole je_tsd_tls)

run(${NM} --defined-only --extern-only --format=posix ${parts}/whole)
string(REGEX REPLACE "\n" ";" lines "${out}")
set(renames "je_tsd_tls vbn_je_tsd_tls\n")
foreach(line IN LISTS lines)
	if(line MATCHES "^([^ ]+) ")
		set(name ${CMAKE_MATCH_1})
		string(REGEX REPLACE "^je_" "" plain ${name})
		if(name STREQUAL plain)
			string(APPEND renames "${name} vbn_je_${name}\n")
		else()
			string(APPEND renames "${name} vbn_je_i_${plain}\n")
		endif()
	endif()
endforeach()
foreach(name pthread_key_create pthread_setspecific pthread_atfork
		pthread_create secure_getenv readlink atexit sbrk)
	string(APPEND renames "${name} vbn_je_no_${name}\n")
endforeach()
file(WRITE ${parts}/renames "${renames}")

run(${OBJCOPY} --redefine-syms=${parts}/renames
	--add-symbol vbn_je_tsd_image=.data.vbn_je_tsd:0,global,object
	--rename-section .tdata=.data.vbn_je_tsd
	--remove-section .init_array --remove-section .rela.init_array
	${parts}/whole ${parts}/renamed)

# What must not be left over: a name of its own, or thread-local storage.
run(${NM} --defined-only --extern-only --format=posix ${parts}/renamed)
string(REGEX REPLACE "\n" ";" lines "${out}")
foreach(line IN LISTS lines)
	if(NOT line MATCHES "^vbn_je_|^DW.ref|^$")
		message(FATAL_ERROR "not renamed: ${line}")
	endif()
endforeach()
file(RENAME ${parts}/renamed ${OBJECT})
file(REMOVE_RECURSE ${parts})
