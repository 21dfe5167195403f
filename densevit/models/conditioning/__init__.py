"""conditioning"""
