"""The values, module by module. The numbers in comments are those of the acceptance list."""
