"""Files of a model as Hugging Face stores them: JSON, safetensors, shards."""
