"""The provider simulator: a real HTTP server speaking System One and OpenAI Decisions, without a model."""
