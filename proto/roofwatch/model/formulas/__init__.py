"""FLOPs and bytes of one call, from op name, shapes, dtypes, strides and concrete inputs. Pure."""
