"""What the routes of files and batches, and the worker, share in one process."""

from __future__ import annotations

from pagemill.config import BatchApiConfig
from pagemill.server.batches.files import BatchFiles
from pagemill.server.batches.folder import BatchFolder, folder_path
from pagemill.server.batches.queue import BatchQueue


class BatchStore:
    """The files and the batches of --batch-dir."""

    def __init__(self, config: BatchApiConfig, path: str) -> None:
        self.config = config
        self._folder = BatchFolder(config, path)
        self.files = BatchFiles(self._folder)
        self.queue = BatchQueue(self._folder)

    @classmethod
    def of(cls, config: BatchApiConfig) -> BatchStore | None:
        """The store; None if no folder is configured."""
        path = folder_path(config)
        return None if path is None else cls(config, path)

    async def close(self) -> None:
        """Closes the folder."""
        await self._folder.close()
