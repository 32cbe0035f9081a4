"""The ModelBackend operator: llama.cpp backends whose ports are never reused before proof."""
