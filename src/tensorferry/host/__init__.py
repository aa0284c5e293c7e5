"""Host memory: aligned arrays, casts, DLPack, packed buffers."""
