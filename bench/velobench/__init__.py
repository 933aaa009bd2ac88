"""What measures velo, around the probes in bench/*.cc. bench/run is its one entry."""
