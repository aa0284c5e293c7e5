"""What a device has beside the host: streams, and host memory that is page-locked for its transfers."""
