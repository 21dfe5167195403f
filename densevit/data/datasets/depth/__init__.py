"""depth"""
