"""Speed of densevit beside other implementations on this machine: a module for each section of `densevit benchmark`."""
