"""The measurements of velo, around the probes in bench/*.cc. bench/run is the one entry."""
