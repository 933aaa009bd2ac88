/* Numbers of Open MPI 5.0, for code that sees none of its headers. */
#ifndef VELO_SERIES_LIMITS_H
#define VELO_SERIES_LIMITS_H

/* The longest header of ob1's messages. */
#define VELO_OB1_HEADER_BYTES 80

#endif /* VELO_SERIES_LIMITS_H */
