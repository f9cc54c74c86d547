"""Audio to text: the routes of transcriptions and translations."""
