"""Model files in the Hugging Face layout: JSON, safetensors, shards."""
