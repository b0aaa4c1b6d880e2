# mlxx_add_device_text(<files>...): sources of GPU kernels that MLX
# compiles at run time, as constants. `folder/few_rows.cuh` becomes the header
# `folder/few_rows_text.h` of the build's generated/ folder, with kFewRowsText.
function(mlxx_add_device_text)
  foreach(file ${ARGN})
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    get_filename_component(folder ${file} DIRECTORY)
    get_filename_component(stem ${file} NAME_WE)
    string(REGEX REPLACE "_([a-z0-9])" ";\\1" words "_${stem}")
    set(name k)
    foreach(word ${words})
      string(SUBSTRING "${word}" 0 1 first)
      string(SUBSTRING "${word}" 1 -1 rest)
      string(TOUPPER "${first}" first)
      string(APPEND name "${first}${rest}")
    endforeach()
    file(READ ${path} text)
    # Texts are put together by whoever compiles them: other texts of ours are
    # not included, and NVRTC warns of "pragma once" in what is no header.
    string(REPLACE "#pragma once\n" "" text "${text}")
    string(REGEX REPLACE "#include \"[^\n]*\n" "" text "${text}")
    file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
    set(DEVICE_TEXT_NAME ${name}Text)
    set(DEVICE_TEXT "${text}")
    set(DEVICE_TEXT_FILE ${file})
    configure_file(${CMAKE_SOURCE_DIR}/cmake/device_text.h.in
                   ${CMAKE_BINARY_DIR}/generated/${relative}/${stem}_text.h @ONLY)
  endforeach()
endfunction()
