//! Running a user's test under many seeds, and saying how to replay the one that failed.
