# rclpy over Fast DDS loads the C type support alone: Fast DDS's own, and the introspection from which it describes the types
# to others. C++ and the Python extensions for single middlewares are half of the build. ./crbo, which brings just that, sets
# this; in a workspace everything is generated, for C++ nodes, bags and other middlewares.
option(CRBO_RCLPY_ONLY "Generate only the type support that rclpy over Fast DDS loads" OFF)
if(CRBO_RCLPY_ONLY)
  list(FILTER AMENT_EXTENSIONS_rosidl_generate_idl_interfaces EXCLUDE REGEX "_cpp:")
  macro(rosidl_generator_py_get_typesupports names)
    set(${names} rosidl_typesupport_c)
  endmacro()
endif()
